"""The services over real gRPC, with a real queue in Redis: every way a stream can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from admission.world import World
from processor import test_access_log
from processor.stage import (
    Reply,
    Stage,
    body,
    chat,
    headers,
    response_headers,
    whole,
)
from structlog.testing import capture_logs

from extproc.admission.ports import Capacity
from extproc.app.servers import grpc_server
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended
from extproc.estimation import TiktokenEstimator
from extproc.processor.exchange import Exchange
from extproc.processor.servicer import ACCESS_LOG, EXT_PROC, AccessLog, Processor, handlers
from extproc.settings import ServerSettings
from extproc.waitqueue import GrantFeed, RedisQueue
from extproc.waitqueue.client import connect, connect_feed


@dataclass
class Service:
    """A server with our handlers, and a channel to it."""

    world: World
    stage: Stage
    server: grpc.aio.Server
    channel: grpc.aio.Channel
    ended: list[Ended]

    def open(self) -> Any:
        """Open one ext_proc stream, as raw bytes."""
        return self.channel.stream_stream(f"/{EXT_PROC}/Process")()

    async def ask(self, *script: bytes) -> tuple[Any, Reply]:
        """Open a stream, say what there is to say, and return it with the last reply."""
        stream = self.open()
        for data in script:
            await stream.write(data)
            reply = Reply(await stream.read())
        return stream, reply

    async def held(self) -> tuple[int, int]:
        """Leases and waiters, as the store has them."""
        state = await self.world.queue.state()
        return state.held_requests, sum(b.requests for b in state.backlog.values())


@pytest.fixture
async def service(store_server, no_task_left) -> AsyncIterator[Service]:
    client = connect(store_server.url, timeout_s=5, max_connections=8)
    feed_client = connect_feed(store_server.url, timeout_s=5)

    def make(world: World) -> RedisQueue:
        return RedisQueue(client, "llama", "a", on_grant=world.mailbox.deliver, timeout_s=5)

    world = World(queue=make)
    subscribed = asyncio.Event()
    feed = GrantFeed(
        feed_client, "a", listeners={"llama": world.mailbox.deliver}, on_reconnect=subscribed.set
    )
    listening = asyncio.create_task(feed.run())
    await asyncio.wait_for(subscribed.wait(), 5)
    await world.queue.set_capacity(Capacity(100, None))
    estimator = TiktokenEstimator()
    stage = Stage(world, estimator=estimator)
    server = grpc_server(ServerSettings())
    ended: list[Ended] = []
    server.add_generic_rpc_handlers(handlers(Processor(stage.gate, stage.observer), AccessLog(ended.append)))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel, world.running():
            yield Service(world, stage, server, channel, ended)
            await server.stop(0)
    finally:
        await server.stop(0)
        listening.cancel()
        await asyncio.wait([listening])
        estimator.close()
        await client.aclose()
        await feed_client.aclose()


async def nothing_is_held(service: Service) -> bool:
    return await service.held() == (0, 0) and service.world.outbox.is_empty


async def test_a_half_close_after_the_answer_gives_back(service, wait_until):
    stream, reply = await service.ask(whole(chat(), x_forebay_ticket="t-1"))
    assert reply.metadata["ticket"] == "t-1"
    assert (await service.held())[0] == 1
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
    await wait_until(lambda: nothing_is_held(service))


async def test_a_cancel_after_the_answer_gives_back(service, wait_until):
    stream, _ = await service.ask(headers(), body(chat()), response_headers())
    stream.cancel()
    await wait_until(lambda: nothing_is_held(service))


async def test_a_cancel_during_the_wait_gives_back_the_place(service, wait_until):
    first, _ = await service.ask(whole(chat()))
    second = service.open()
    await second.write(whole(chat()))

    async def waits() -> bool:
        return await service.held() == (1, 1)

    await wait_until(waits)
    second.cancel()

    async def has_left() -> bool:
        return await service.held() == (1, 0)

    await wait_until(has_left)
    first.cancel()
    await wait_until(lambda: nothing_is_held(service))


async def test_room_that_comes_free_reaches_the_waiter(service, wait_until):
    first, _ = await service.ask(whole(chat()))
    second = asyncio.create_task(service.ask(whole(chat())))

    async def waits() -> bool:
        return await service.held() == (1, 1)

    await wait_until(waits)
    first.cancel()
    stream, reply = await asyncio.wait_for(second, 5)
    assert reply.metadata["pool"] == "llama"
    stream.cancel()
    await wait_until(lambda: nothing_is_held(service))


async def test_the_end_of_the_server_gives_back(service, wait_until):
    stream, _ = await service.ask(whole(chat()))
    await service.server.stop(0)
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()
    await wait_until(lambda: nothing_is_held(service))


async def test_two_hundred_exchanges_reset_right_after_the_answer_leave_nothing_behind(service, wait_until):
    for _ in range(10):
        streams = await asyncio.gather(
            *(service.ask(whole(chat(11), x_forebay_tenant="a")) for _ in range(5))
        )
        for stream, _reply in streams:
            stream.cancel()
    for _ in range(150):
        stream, _reply = await service.ask(whole(chat(11)))
        stream.cancel()
    await wait_until(lambda: nothing_is_held(service))
    assert sum(word.startswith("admitted") for word in service.world.heard.words) == 200


async def test_a_second_stream_with_the_same_ticket_takes_over_what_the_first_held(service, wait_until):
    first, _ = await service.ask(whole(chat(), x_forebay_ticket="t-1"))
    second, reply = await service.ask(whole(chat(), x_forebay_ticket="t-1"))
    assert reply.metadata["ticket"] == "t-1"
    first.cancel()
    await wait_until(lambda: service.world.outbox.is_empty)
    assert await service.held() == (1, 0)
    second.cancel()
    await wait_until(lambda: nothing_is_held(service))


async def test_a_draining_replica_ends_the_stream_so_that_envoy_tries_another(service, wait_until):
    service.world.admission.drain(can_hand_over=True)
    stream = service.open()
    await stream.write(whole(chat()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_violation_ends_the_stream_and_is_logged(service):
    with capture_logs() as lines:
        stream = service.open()
        await stream.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [line["event"] for line in lines] == ["protocol violation"]


async def test_a_fault_of_ours_ends_the_stream_without_telling_what_it_was(service, wait_until):
    class Broken:
        async def appraise(self, *_):
            raise ZeroDivisionError("a secret")

    service.stage.gate._estimator = Broken()
    with capture_logs() as lines:
        stream = service.open()
        await stream.write(whole(chat()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()
    assert "exchange failed" in [line["event"] for line in lines]
    await wait_until(lambda: nothing_is_held(service))


class Silent(Exchange):
    """An exchange that forgets to answer."""

    async def run(self) -> None:
        await self._transport.receive()


async def test_a_stream_is_never_ended_in_peace_without_an_answer(service, monkeypatch):
    """Envoy would take it for consent."""
    monkeypatch.setattr("extproc.processor.servicer.Exchange", Silent)
    stream = service.open()
    await stream.write(whole(chat()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "no answer"


async def test_the_access_log_is_read_to_its_end_past_what_is_unreadable(service):
    from envoy_data_plane.envoy.service.accesslog.v3 import (
        StreamAccessLogsMessage,
        StreamAccessLogsMessageHttpAccessLogEntries,
    )

    entries = StreamAccessLogsMessageHttpAccessLogEntries(log_entry=[test_access_log.entry()])
    call = service.channel.stream_unary(f"/{ACCESS_LOG}/StreamAccessLogs")()
    with capture_logs() as lines:
        await call.write(b"\xff\xff\xff")
        await call.write(bytes(StreamAccessLogsMessage(http_logs=entries)))
        await call.done_writing()
        assert await call == b""
    assert service.ended == [Ended("llama-70b", "batch", "t-1", Ending.COMPLETE, body_bytes=10)]
    assert [line["event"] for line in lines] == ["access log unreadable"]
