"""Measure what it costs to learn what responses took: `python bench/usage.py [--rounds N]`, on Linux.

One operation is 1,000 chunks of 10 streamed answers, each chunk one event of vLLM's size, through real Envoy
and a server of its own for each mode, in turn; the engine streams and the clients read in this process.
Envoy's filter that reads usage for the access log runs in all of them: docs/envoy.md tells its price.
"""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
import yaml
from aiohttp import web
from rich.console import Console
from rich.table import Table

from extproc.bench.meters import Reading
from extproc.simulator.console import Story
from extproc.simulator.launch import Gateway, Launcher, claim_ports

MODES: dict[str, dict[str, Any]] = {
    "off": {"usage": "off"},
    "access_log": {"usage": "access_log"},
    "stream": {"usage": "stream"},
    "stream, a tenth": {"usage": "stream", "usage_sample": 0.1},
    "stream, inject": {"usage": "stream", "stream_usage": "inject"},
}
CHUNKS, GAP_S = 100, 0.01  # of one answer
CLIENTS, ANSWERS = 25, 75  # at once, and in a round

_HOST = "127.0.0.1"
_HEAD = b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1796132947,'
_CONTENT = (
    _HEAD
    + b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"model":"m"}'
    b"\n\n"
)
_USAGE = _HEAD + b'"choices":[],"usage":{"prompt_tokens":9,"total_tokens":109,"completion_tokens":100}}\n\n'


async def _answer(request: web.Request) -> web.StreamResponse:
    wants_usage = b'"include_usage":true' in await request.read()
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for _ in range(CHUNKS):
        await response.write(_CONTENT)
        await asyncio.sleep(GAP_S)
    if wants_usage:
        await response.write(_USAGE)
    await response.write(b"data: [DONE]\n\n")
    return response


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[dict[str, Gateway]]:
    """Run an engine, Redis, and a gateway for each mode."""
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_post("/{path:.*}", _answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, _HOST, 0).start()
        engine = f"http://{_HOST}:{runner.addresses[0][1]}"
        redis = await Launcher(directory, stack, Story(is_quiet=True)).redis()
        gateways = {}
        for number, (mode, pool) in enumerate(MODES.items()):
            folder = directory / str(number)
            folder.mkdir()
            config = folder / "forebay.yaml"
            pools = [{"name": f"bench-{number}", "capacity": {"tokens": 10**9, "requests": 10**6}, **pool}]
            config.write_text(yaml.safe_dump({"redis": {"url": redis}, "pools": pools}), encoding="utf-8")
            launcher = Launcher(folder, stack, Story(is_quiet=True))
            claims = claim_ports(1, None, stack.enter_context(ExitStack()))
            [gateways[mode]] = await launcher.gateways(claims, config, [engine])
        yield gateways


async def measure(gateway: Gateway) -> dict[str, float]:
    """Return the milliseconds that server and Envoy use for 1,000 chunks."""
    pids = {"server": gateway.server.pid, "envoy": gateway.envoy.pid}
    body = {
        "model": "m",
        "max_tokens": CHUNKS,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    left = iter(range(ANSWERS))

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(f"{gateway.url}/v1/chat/completions", json=body) as response:
                response.raise_for_status()
                async for _chunk in response.content.iter_any():
                    pass

    before = Reading.take(pids)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client(session))
    used = Reading.take(pids).since(before)
    return {name: 1000 * used_s / (ANSWERS * CHUNKS / 1000) for name, used_s in used.processes_s.items()}


async def main() -> None:
    """Measure all modes in turn and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    rounds = parser.parse_args().rounds
    figures: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as directory:
        async with running(Path(directory)) as gateways:
            for number in range(rounds + 1):
                for mode, gateway in gateways.items():
                    for name, used_ms in (await measure(gateway)).items():
                        if number:  # the first round warms up
                            figures[mode, name].append(used_ms)
    table = Table("usage", "server, ms", "range", "over off", "Envoy, ms", "range", "over off")
    for mode in MODES:
        cells = [cell for name in ("server", "envoy") for cell in _cells(figures, mode, name)]
        table.add_row(mode, *cells)
    Console(width=110).print(
        f"CPU for 1,000 chunks, median of {rounds} rounds of {ANSWERS * CHUNKS:,} chunks", table
    )


def _cells(figures: dict[tuple[str, str], list[float]], mode: str, name: str) -> tuple[str, str, str]:
    used, base = figures[mode, name], figures["off", name]
    middle = statistics.median(used)
    spread = f"{min(used):.1f}-{max(used):.1f}"
    return f"{middle:.1f}", spread, f"{middle - statistics.median(base):+.1f}"


if __name__ == "__main__":
    uvloop.run(main())
