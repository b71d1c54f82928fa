"""A whole replica on a real store: ports, probes, drain."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import yaml
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from extproc import cli
from extproc import settings as configuration
from extproc.app import replica as replica_module
from extproc.app.replica import Replica
from extproc.domain.errors import ConfigError
from extproc.processor.proto import forebay_pb2 as wire
from extproc.processor.servicer import ACCESS_LOG, EXT_PROC
from extproc.settings import Settings

RECORDED = Path(__file__).parents[1] / "backends" / "fixtures"


def settings_for(store: Any, **changes: Any) -> Settings:
    return configuration.parse(document(store, **changes), source="test")


def document(store: Any, **changes: Any) -> dict[str, Any]:
    pool = {"name": "llama", "models": ["llama*"], "capacity": {"tokens": 100}, "device": "H100-SXM"}
    return {
        "redis": {"url": store.url, "timeout_s": 5},  # a busy machine is no lost store
        "server": {
            "grpc": "127.0.0.1:0",
            "http": "127.0.0.1:0",
            "drain_wait_s": 0.3,
            "drain_s": 5,
        },
        "leases": {"sweep_every_s": 0.05, "renew_every_s": 0.1},
        "headers": {"tenant": "trust", "priority": "trust"},
        "pools": [pool],
        **changes,
    }


def body(tokens: int = 60, model: str = "llama-70b", **attributes: str) -> bytes:
    """The recommended chain's one message; the prompt has some 10 tokens."""
    text = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens}
    message = wire.ProcessingRequest(
        request_body=wire.HttpBody(body=json.dumps(text).encode(), end_of_stream=True)
    )
    struct = message.attributes["envoy.filters.http.ext_proc"]
    struct.update({"request.path": "/v1/chat/completions"})
    struct.update({f"request.headers['{k.replace('_', '-')}']": v for k, v in attributes.items()})
    return message.SerializeToString()


@dataclass
class Running:
    """A replica that serves."""

    replica: Replica
    stopping: asyncio.Event
    task: asyncio.Task[None]
    channel: grpc.aio.Channel
    http: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str]:
        async with self.http.get(path) as response:
            return response.status, await response.text()

    async def status(self) -> dict[str, Any]:
        return json.loads((await self.get("/api/v1/status"))[1])

    async def pool(self) -> dict[str, Any]:
        return (await self.status())["pools"][0]

    def open(self) -> Any:
        return self.channel.stream_stream(f"/{EXT_PROC}/Process")()

    async def ask(self, data: bytes) -> tuple[Any, wire.ProcessingResponse]:
        stream = self.open()
        await stream.write(data)
        return stream, wire.ProcessingResponse.FromString(await stream.read())

    async def stops(self) -> None:
        self.stopping.set()
        await asyncio.wait_for(self.task, 15)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Run a replica in this process and stop it, if the test has not."""
    loop = asyncio.get_running_loop()
    stopping, ready = asyncio.Event(), loop.create_future()
    replica = Replica(settings)
    task = asyncio.create_task(replica.run(stopping, on_ready=ready.set_result))
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=20)
    if task.done():
        await task
    addresses = await ready
    async with (
        grpc.aio.insecure_channel(addresses["ext_proc"]) as channel,
        aiohttp.ClientSession(f"http://{addresses['http']}") as http,
    ):
        found = Running(replica, stopping, task, channel, http)
        try:
            yield found
        finally:
            await found.stops()


@pytest.fixture
async def served(own_store, no_task_left) -> AsyncIterator[Running]:
    async with running(settings_for(own_store)) as found:
        yield found


async def test_the_probes_say_yes(served):
    assert await served.get("/livez") == (200, "ok\n")
    assert await served.get("/readyz") == (200, "ok\n")
    stub = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_page_and_the_api_show_the_pool(served, wait_until):
    status, page = await served.get("/")
    assert (status, "<html" in page) == (200, True)
    found = await served.status()
    assert found["replica"] == served.replica.name
    assert (found["is_ready"], found["is_draining"]) == (True, False)

    async def is_known() -> bool:
        return (await served.pool())["capacity"]["tokens"] == 100

    await wait_until(is_known)
    status, text = await served.get("/api/v1/pools/llama")
    assert (status, json.loads(text)["name"]) == (200, "llama")
    assert (await served.get("/api/v1/pools/other"))[0] == 404


async def test_what_is_held_and_waits_is_shown_by_status_and_metrics(served, wait_until):
    first, reply = await served.ask(body())
    assert reply.dynamic_metadata["forebay"]["pool"] == "llama"
    second = served.open()
    await second.write(body(x_forebay_priority="batch"))

    async def is_shown() -> bool:
        pool = await served.pool()
        return pool["own"] == {"held": 1, "waiting": 1} and pool["waiting"]["batch"]["requests"] == 1

    await wait_until(is_shown)
    families = list(text_string_to_metric_families((await served.get("/metrics"))[1]))
    values = {s.name: s for family in families for s in family.samples}
    assert values["llm_queue_wait_seconds_bucket"].labels.keys() == {"model", "class", "le"}
    assert values["gpu_active_tokens_total"].labels == {"device": "H100-SXM"}
    assert values["gpu_max_concurrent_tokens"].value == 100
    assert values["forebay_inflight_requests"].value == 1
    first.cancel()
    assert wire.ProcessingResponse.FromString(await second.read()).WhichOneof("response") == "request_body"
    second.cancel()


async def test_a_pool_that_is_off_and_a_model_of_no_pool_pass_untouched(own_store, no_task_left):
    pools = [{"name": "llama", "models": ["llama*"], "mode": "off", "capacity": {"tokens": 10}}]
    async with running(settings_for(own_store, pools=pools)) as served:
        for model in ("llama-70b", "gpt"):
            _, reply = await served.ask(body(5000, model=model))
            assert reply.WhichOneof("response") == "request_body"
            assert list(reply.dynamic_metadata["forebay"]) == ["ticket"]
        line = 'forebay_requests_total{class="none",outcome="unmanaged",pool="none"} 2.0'
        assert line in (await served.get("/metrics"))[1]


async def test_the_access_log_is_counted(served, wait_until):
    message = wire.StreamAccessLogsMessage()
    entry = message.http_logs.log_entry.add()
    entry.response.response_code.value = 200
    fields = {"pool": "llama", "class": "batch", "ticket": "t-1"}
    entry.common_properties.metadata.filter_metadata["forebay"].update(fields)
    call = served.channel.stream_unary(f"/{ACCESS_LOG}/StreamAccessLogs")()
    await call.write(message.SerializeToString())
    await call.done_writing()
    await call
    line = 'forebay_responses_total{class="batch",ending="complete",pool="llama"} 1.0'
    assert line in (await served.get("/metrics"))[1]


@pytest.fixture
async def engine(no_task_left) -> AsyncIterator[str]:
    """The URL of an engine with vLLM's recorded pages: room for 1,048,576 tokens, 4,096 for a request."""

    async def metrics(_):
        return web.Response(text=(RECORDED / "vllm_idle.txt").read_text())

    async def models(_):
        return web.Response(body=(RECORDED / "vllm_models.json").read_bytes())

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_capacity_of_auto_is_asked_of_the_engines(own_store, wait_until, engine):
    pools = [{"name": "llama", "backends": {"endpoints": [engine, "http://127.0.0.1:1"]}}]
    async with running(settings_for(own_store, pools=pools)) as served:

        async def is_known() -> bool:
            return (await served.pool())["capacity"] == {"tokens": int(1_048_576 * 0.95), "requests": 256}

        await wait_until(is_known)


@pytest.mark.parametrize(("configured", "context"), [(None, 4096), (2000, 2000)])
async def test_the_context_is_asked_of_the_engines_unless_it_is_configured(
    own_store, wait_until, engine, configured, context
):
    pools = [{"name": "llama", "backends": {"endpoints": [engine]}, "context_tokens": configured}]
    async with running(settings_for(own_store, pools=pools)) as served:

        async def is_known() -> bool:
            return (await served.pool())["context_tokens"] == context

        await wait_until(is_known)
        _, reply = await served.ask(body(1_000_000))
        told = reply.dynamic_metadata["forebay"]
        assert told["reserved_tokens"] == str(context)


# --- drain ----------------------------------------------------------------------------------------------


async def test_a_drain_alone_lets_responses_end_and_refuses_those_who_still_wait(served, wait_until):
    held, _ = await served.ask(body())
    waiting = served.open()
    await waiting.write(body())

    async def waits() -> bool:
        return (await served.pool())["own"]["waiting"] == 1

    await wait_until(waits)
    served.stopping.set()

    async def is_unready() -> bool:
        return (await served.get("/readyz"))[0] == 503

    await wait_until(is_unready)
    assert (await served.get("/livez"))[0] == 200
    assert (await served.status())["is_draining"]
    stub = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    for stream in (waiting, served.open()):
        if stream is not waiting:
            await stream.write(body(1))
        reply = wire.ProcessingResponse.FromString(await stream.read())
        assert reply.immediate_response.status.code == 503
        assert b"draining" in reply.immediate_response.body
    assert not served.task.done()
    held.cancel()
    await asyncio.wait_for(served.task, 5)


async def test_a_drain_beside_another_replica_hands_its_waiters_over(own_store, wait_until, no_task_left):
    async with running(settings_for(own_store)) as one, running(settings_for(own_store)) as other:
        await wait_until(lambda: one.replica._pools[0].primary.replicas == 2)
        held, _ = await other.ask(body())
        waiting = one.open()
        await waiting.write(body(x_forebay_ticket="t-1"))

        async def waits() -> bool:
            return (await one.pool())["waiting"]["interactive"]["requests"] == 1

        await wait_until(waits)
        one.stopping.set()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await waiting.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        again = other.open()
        await again.write(body(x_forebay_ticket="t-1"))
        held.cancel()
        reply = wire.ProcessingResponse.FromString(await again.read())
        assert int(reply.dynamic_metadata["forebay"]["wait_ms"]) > 0
        again.cancel()


async def test_a_drain_sees_a_replica_that_came_after_the_last_renewal(own_store, wait_until, no_task_left):
    seldom = {"leases": {"sweep_every_s": 0.05, "renew_every_s": 30, "heartbeat_s": 60, "lease_s": 60}}
    async with (
        running(settings_for(own_store, **seldom)) as one,
        running(settings_for(own_store, **seldom)) as other,
    ):
        await wait_until(lambda: other.replica._pools[0].primary.replicas == 2)
        one.replica._pools[0].primary.replicas = 1  # as if its last renewal had been before the other came
        await other.ask(body())
        waiting = one.open()
        await waiting.write(body(x_forebay_ticket="t-1"))

        async def waits() -> bool:
            return (await one.pool())["own"]["waiting"] == 1

        await wait_until(waits)
        one.stopping.set()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await waiting.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_responses_that_run_on_too_long_are_cut(own_store, no_task_left):
    changes = {"server": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", "drain_wait_s": 0, "drain_s": 0.1}}
    async with running(settings_for(own_store, **changes)) as served:
        held, _ = await served.ask(body())
        await served.stops()
        with pytest.raises(grpc.aio.AioRpcError):
            await held.read()


# --- the store is away ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "is_ready"), [("local", True), ("open", True), ("closed", False)])
async def test_a_replica_starts_without_its_store_and_joins_it_later(
    policy, is_ready, own_store, wait_until, no_task_left
):
    own_store.stop()
    async with running(settings_for(own_store, on_store_loss=policy)) as served:
        assert (await served.get("/readyz"))[0] == (200 if is_ready else 503)
        assert (await served.get("/livez"))[0] == 200
        assert not (await served.pool())["store_up"]
        stream, reply = await served.ask(body())
        assert (reply.WhichOneof("response") == "request_body") == is_ready
        stream.cancel()
        own_store.start()

        async def is_up() -> bool:
            pool = await served.pool()
            return pool["store_up"] and pool["capacity"]["tokens"] == 100

        await wait_until(is_up, 10)
        assert (await served.get("/readyz"))[0] == 200


async def test_a_store_that_lost_its_memory_is_told_what_is_held(served, own_store, wait_until):
    stream, _ = await served.ask(body())
    own_store._control.flushall()

    async def is_healed() -> bool:
        pool = await served.pool()
        return (pool["held"]["requests"], pool["capacity"]["tokens"]) == (1, 100)

    await wait_until(is_healed)
    stream.cancel()


# --- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", ["grpc", "http"])
async def test_an_address_in_use_is_a_fault_that_names_it(port, served, own_store):
    taken = f"127.0.0.1:{served.http._base_url.port}"
    changes = document(own_store)
    changes["server"][port] = taken
    with pytest.raises(ConfigError, match=taken):
        async with running(configuration.parse(changes, source="test")):
            pass


async def test_a_server_nobody_can_reach_is_refused(own_store):
    changes = document(own_store)
    changes["server"]["grpc"] = ""
    with pytest.raises(ConfigError, match="neither grpc nor unix_socket"):
        async with running(configuration.parse(changes, source="test")):
            pass


async def test_the_unix_socket_serves_too(own_store, no_task_left):
    changes = document(own_store)
    path = own_store.path.replace("store.sock", "forebay.sock")
    changes["server"] |= {"grpc": "", "unix_socket": path}
    async with running(configuration.parse(changes, source="test")) as served:
        stream, reply = await served.ask(body())
        assert reply.WhichOneof("response") == "request_body"
        stream.cancel()


async def test_a_loop_that_ends_unasked_takes_the_process_down(own_store, no_task_left):
    async def ends() -> None:
        return

    with pytest.raises(RuntimeError, match="ended unasked"):
        await replica_module._endless(ends)


# --- as a process ---------------------------------------------------------------------------------------


async def test_a_signal_ends_it_in_peace(own_store, no_task_left):
    def stop(_addresses: dict[str, str]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    await asyncio.wait_for(replica_module.serve(settings_for(own_store), on_ready=stop), 20)


@pytest.fixture
def process(own_store, tmp_path):
    """`forebay serve` and the address of its HTTP port, read from its log."""
    file = tmp_path / "forebay.yaml"
    file.write_text(yaml.safe_dump(document(own_store)))
    command = [sys.executable, "-m", "extproc", "serve", "--config", str(file)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as served:
        try:
            for line in served.stderr:
                event = json.loads(line)
                if event["event"] == "serving":
                    yield served, f"http://{event['http']}"
                    break
        finally:
            served.kill()


def test_a_process_shows_its_status_and_ends_in_peace_on_sigterm(process):
    served, url = process
    shown = CliRunner().invoke(cli.app, ["status", "--json", "--url", url], catch_exceptions=False)
    assert json.loads(shown.stdout)["pools"][0]["name"] == "llama"
    wide = CliRunner(env={"COLUMNS": "200"})
    shown = wide.invoke(cli.app, ["status", "--url", url], catch_exceptions=False)
    assert "llama (enforce)" in shown.stdout
    served.send_signal(signal.SIGTERM)
    _, log = served.communicate(timeout=20)
    assert served.returncode == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events[-1] == "drained"
