"""Clients that leave, faults on demand, and the end of the engine itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import sys

import aiohttp
import pytest

from extproc.simulator.engine import Engine
from extproc.simulator.server import serve_engine
from extproc.simulator.settings import EngineSettings

CHAT = "/v1/chat/completions"
ENDLESS = {"messages": [], "ignore_eos": True}


async def ended(engine, seq=1):
    return (await engine.get("/sim/arrivals"))[seq - 1]["ended"]


def leaves_nothing(engine):
    async def check():
        state = await engine.state()
        return (state["running"], state["waiting"], state["kv_used_tokens"]) == (0, 0, 0)

    return check


async def test_a_stream_whose_client_leaves_is_aborted(start_engine, wait_until):
    engine = await start_engine(speed=1.0)
    async with engine.http.post(engine.url + CHAT, json=ENDLESS | {"stream": True}) as response:
        await response.content.readany()
        assert (await engine.state())["running"] == 1
        response.close()
    await wait_until(leaves_nothing(engine))
    assert await ended(engine) == "aborted"
    await wait_until(lambda: shows(engine, "vllm:num_requests_running", 0))


async def shows(engine, name, value):
    return f'{name}{{engine="0",model_name="tiny"}} {value:.1f}' in await engine.metrics()


async def test_a_connection_that_breaks_between_two_writes_is_no_error(engine, wait_until):
    """The second write fails before aiohttp cancels; `start_engine` fails a test that logs an error."""
    body = b'{"input": "hi", "stream": true}'  # headers, then at once the first events
    request = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", int(engine.url.rpartition(":")[2]))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request % (b"/v1/responses", len(body), body))

    async def all_aborted():
        arrivals = await engine.get("/sim/arrivals")
        return [arrival["ended"] for arrival in arrivals] == ["aborted"] * 5

    await wait_until(all_aborted)
    await wait_until(leaves_nothing(engine))


async def test_a_whole_answer_whose_client_leaves_is_aborted(start_engine, wait_until):
    engine = await start_engine(speed=1.0)
    asking = asyncio.create_task(engine.post(CHAT, ENDLESS))

    async def two_produced():
        return (await engine.state())["kv_tokens"] >= 2  # the prompt's one, and the first output's

    await wait_until(two_produced)
    asking.cancel()
    await wait_until(leaves_nothing(engine))
    (arrival,) = await engine.get("/sim/arrivals")
    assert arrival["ended"] == "aborted"
    assert arrival["output_tokens"] >= 2


async def test_a_waiting_request_whose_client_leaves_never_runs(start_engine, wait_until):
    engine = await start_engine(speed=1.0, max_num_seqs=1)
    async with engine.http.post(engine.url + CHAT, json=ENDLESS | {"stream": True}):

        async def waiting():
            return (await engine.state())["waiting"]

        queued = asyncio.create_task(engine.post(CHAT, ENDLESS))
        await wait_until(waiting)
        queued.cancel()
        await wait_until(lambda: not_waiting(engine))
    await wait_until(leaves_nothing(engine))
    assert (await engine.get("/sim/arrivals"))[1]["output_tokens"] == 0


async def not_waiting(engine):
    return (await engine.state())["waiting"] == 0


@pytest.mark.parametrize("status", [500, 503])
async def test_a_planned_status_is_answered(engine, status):
    answered, answer = await engine.post(CHAT, ENDLESS, headers={"x-sim-fault": f"status-{status}"})
    assert (answered, answer["error"]["code"]) == (status, status)
    assert await ended(engine) == "error"


async def received_until_cut(response):
    """Return what came of a response before its connection broke."""
    received = b""
    with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012 - what came before is what counts
        async for data in response.content.iter_any():
            received += data
    return received


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_a_planned_reset_cuts_the_stream_after_so_many_pieces(engine, pieces, wait_until):
    headers = {"x-sim-fault": f"reset-after-{pieces}"}
    body = ENDLESS | {"stream": True}
    async with engine.http.post(engine.url + CHAT, json=body, headers=headers) as response:
        received = await received_until_cut(response)
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in received.split(b"\n\n") if line]
    contents = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
    assert len([content for content in contents if content]) == pieces
    await wait_until(leaves_nothing(engine))
    assert await ended(engine) == "error"


async def test_a_planned_reset_drops_a_whole_answer(engine):
    headers = {"x-sim-fault": "reset-after-1"}
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await engine.post(CHAT, {"messages": [], "max_tokens": 2}, headers=headers)
    assert await ended(engine) == "error"


async def test_a_reset_planned_after_the_end_does_not_happen(engine):
    headers = {"x-sim-fault": "reset-after-100"}
    body = {"messages": [], "max_tokens": 3, "stream": True}
    stream = await engine.stream(CHAT, body, headers=headers)
    assert stream.endswith("data: [DONE]\n\n")
    assert await ended(engine) == "complete"


async def test_a_planned_hang_answers_nothing_until_the_client_leaves(engine, wait_until):
    asking = asyncio.create_task(engine.post(CHAT, ENDLESS, headers={"x-sim-fault": "hang"}))

    async def arrived():
        return len(await engine.get("/sim/arrivals")) == 1

    await wait_until(arrived)
    assert (await engine.state())["peak"]["running"] == 0
    assert await ended(engine) is None
    asking.cancel()

    async def aborted():
        return await ended(engine) == "aborted"

    await wait_until(aborted)


async def test_arrivals_are_kept_in_order_with_their_marks(engine):
    for name in ("one", "two"):
        headers = {"X-Request-Id": name, "X-Mark": name.upper(), "Authorization": "secret"}
        await engine.post(CHAT, {"messages": [], "max_tokens": 2, "ignore_eos": True}, headers=headers)
    first, second = await engine.get("/sim/arrivals")
    assert first | {"at": 0} == {
        "seq": 1,
        "request_id": "one",
        "at": 0,
        "path": CHAT,
        "headers": {"x-request-id": "one", "x-mark": "ONE"},
        "model": None,
        "prompt_tokens": 1,
        "output_tokens": 2,
        "ended": "complete",
    }
    assert second["request_id"] == "two"
    assert second["at"] > first["at"]


async def test_an_open_stream_is_cut_off_when_the_engine_ends(start_engine, wait_until):
    engine = await start_engine(speed=1.0)
    async with engine.http.post(engine.url + CHAT, json=ENDLESS | {"stream": True}) as response:
        whole = asyncio.create_task(engine.post(CHAT, ENDLESS))

        async def both_run():
            return (await engine.state())["running"] == 2

        await wait_until(both_run)
        engine.task.cancel()
        await received_until_cut(response)
        status, answer = await whole
    assert (status, answer["error"]["message"]) == (503, "The engine has stopped.")


async def test_a_port_in_use_is_an_error(engine):
    port = int(engine.url.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        await serve_engine(EngineSettings(), host="127.0.0.1", port=port)


async def test_an_engine_that_fails_ends_the_server_with_its_error(monkeypatch, no_task_left):
    async def fail(_self):
        raise ZeroDivisionError

    monkeypatch.setattr(Engine, "step", fail)
    url = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_engine(EngineSettings(), host="127.0.0.1", port=0, ready=url.set_result)
    )
    async with (
        aiohttp.ClientSession() as http,
        http.post(await url + CHAT, json={"messages": []}) as response,
    ):
        assert response.status == 503
    with pytest.raises(ZeroDivisionError):
        await serving


PROGRAM = """
import asyncio
from extproc.simulator.server import serve_engine
from extproc.simulator.settings import EngineSettings
serve = serve_engine(EngineSettings(), host="127.0.0.1", port=0, ready=lambda url: print(url, flush=True))
asyncio.run(serve)
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_even_with_streams_open(stop, no_task_left):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        url = (await process.stdout.readline()).decode().strip()
        async with (
            aiohttp.ClientSession() as http,
            http.post(url + CHAT, json=ENDLESS | {"stream": True}) as response,
        ):
            await response.content.readany()
            os.kill(process.pid, stop)
            _, errors = await asyncio.wait_for(process.communicate(), 10)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, errors) == (0, b"")
