"""What `bench/gateway.py` measures: an upstream, an Envoy alone in front of it, and an Envoy with Forebay.

All three Envoys have one worker. The upstream is an Envoy too, which reads a body to its end and answers at
once: an engine, real or simulated, would take more time than everything that is measured.
"""
# ruff: noqa: INP001 - beside a script

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from redis.asyncio import Redis

from extproc.bench.meters import Reading
from extproc.bench.wire import Latencies
from extproc.envoyconfig import Bootstrap, Tcp, find_envoy, render
from extproc.simulator.console import Story
from extproc.simulator.launch import Launcher, answers, claim_ports
from extproc.simulator.processes import free_ports, start

_HOST = "127.0.0.1"
_MOST_BYTES = 4 * 2**20
_HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_BUFFER = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_ANSWER = {
    "id": "chatcmpl-0",
    "object": "chat.completion",
    "created": 0,
    "model": "bench",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 400, "completion_tokens": 2, "total_tokens": 402},
}


@dataclass(frozen=True, slots=True)
class Run:
    """One load and what it used.

    Attributes:
        seen: by the client.
        used: processor time by process; `others_s` is what the rest of the machine used meanwhile.
        scripts: calls of scripts in Redis.
        script_s: that Redis spent inside of them, by its own account.
    """

    seen: Latencies
    used: Reading
    scripts: int
    script_s: float


class Rig:
    """Everything that runs.

    Args:
        alone: port of the Envoy without Forebay.
        forebay: port of the one with it.
        pids: `envoy alone`, `envoy`, `server`, `redis`, `upstream` and `client`.
        redis: a client of the store.
    """

    def __init__(self, alone: int, forebay: int, pids: dict[str, int], redis: Redis) -> None:
        self.alone = alone
        self.forebay = forebay
        self._pids = pids
        self._redis = redis

    def read(self) -> Reading:
        """Return the processor time used so far."""
        return Reading.take(self._pids)

    async def measure(self, load: Awaitable[Latencies]) -> Run:
        """Run a load and meter what it uses."""
        calls_before, us_before = await self._scripts()
        before = self.read()
        seen = await load
        used = self.read().since(before)
        calls, us = await self._scripts()
        return Run(seen, used, calls - calls_before, (us - us_before) / 1e6)

    async def _scripts(self) -> tuple[int, int]:
        figures = (await self._redis.info("commandstats")).get("cmdstat_evalsha", {})
        return figures.get("calls", 0), figures.get("usec", 0)


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Rig]:
    """Run everything in a directory until the end of the `async with`."""
    async with AsyncExitStack() as stack:
        story = Story(is_quiet=True)
        launcher = Launcher(directory, stack, story)
        redis_url = await launcher.redis()
        redis = await stack.enter_async_context(Redis.from_url(redis_url))
        upstream, upstream_admin, alone, alone_admin = free_ports(4)
        claims = claim_ports(1, None, stack.enter_context(ExitStack()))
        port = claims[0].getsockname()[1]
        upstream_pid = await _envoy("upstream", _upstream(upstream, upstream_admin), directory, stack)
        config = directory / "forebay.yaml"
        config.write_text(yaml.safe_dump(_settings(redis_url)), encoding="utf-8")
        [gateway] = await launcher.gateways(claims, config, [f"http://{_HOST}:{upstream}"])
        alone_pid = await _envoy("alone", _alone(alone, alone_admin, upstream), directory, stack)
        pids = {
            "envoy alone": alone_pid,
            "envoy": gateway.envoy.pid,
            "server": gateway.server.pid,
            "redis": (await redis.info("server"))["process_id"],
            "upstream": upstream_pid,
            "client": os.getpid(),
        }
        yield Rig(alone, port, pids, redis)


def _settings(redis: str) -> dict[str, Any]:
    """Return a configuration in which there is always room."""
    capacity = {"tokens": 10**9, "requests": 10**6}
    return {"redis": {"url": redis}, "pools": [{"name": "bench", "models": ["*"], "capacity": capacity}]}


async def _envoy(name: str, bootstrap: dict[str, Any], directory: Path, stack: AsyncExitStack) -> int:
    path = directory / f"{name}.json"
    path.write_text(json.dumps(bootstrap), encoding="utf-8")
    flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    child = await start(name, [find_envoy(), "--config-path", path, *flags], directory=directory)
    stack.push_async_callback(child.stop)
    admin = bootstrap["admin"]["address"]["socket_address"]["port_value"]
    await child.until(answers(f"http://{_HOST}:{admin}/ready"))
    return child.pid


def _alone(port: int, admin: int, upstream: int) -> dict[str, Any]:
    """Return Forebay's own bootstrap without Forebay: the same listener, route and upstream."""
    nobody = Tcp(_HOST, 1)
    engines = (Tcp(_HOST, upstream),)
    rendered = render(
        Bootstrap(extproc=(nobody,), engines=engines, listener=Tcp(_HOST, port), admin=Tcp(_HOST, admin))
    )
    bootstrap: dict[str, Any] = yaml.safe_load(rendered)
    [listener] = bootstrap["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["access_log"], manager["local_reply_config"]
    manager["http_filters"] = manager["http_filters"][-1:]  # the router
    [host] = manager["route_config"]["virtual_hosts"]
    for key in ("request_headers_to_remove", "response_headers_to_remove", "response_headers_to_add"):
        del host[key]
    clusters = bootstrap["static_resources"]["clusters"]
    clusters[:] = [cluster for cluster in clusters if cluster["name"] == "engines"]
    return bootstrap


def _upstream(port: int, admin: int) -> dict[str, Any]:
    answer = {
        "match": {"prefix": "/"},
        "response_headers_to_add": [{"header": {"key": "content-type", "value": "application/json"}}],
        "direct_response": {"status": 200, "body": {"inline_string": json.dumps(_ANSWER)}},
    }
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [answer],
        "request_body_buffer_limit": _MOST_BYTES,
    }
    manager = {
        "@type": _HCM,
        "stat_prefix": "upstream",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [
            {"name": "buffer", "typed_config": {"@type": _BUFFER, "max_request_bytes": _MOST_BYTES}},
            {"name": "router", "typed_config": {"@type": _ROUTER}},
        ],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    listener = {"name": "upstream", "address": _address(port), "filter_chains": [chain]}
    return {"admin": {"address": _address(admin)}, "static_resources": {"listeners": [listener]}}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": _HOST, "port_value": port}}
