"""`forebay demo`: the whole system on this machine until Ctrl-C, each part a process of its own."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from extproc import settings as configuration
from extproc.settings import Settings
from extproc.simulator.console import Story
from extproc.simulator.launch import Engine, Launcher, System, claim_ports

_DEFAULT_MODEL = "llama-3.3-70b"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `forebay demo` was asked for; see its `--help`."""

    gateways: int = 2
    engines: int = 2
    config: Path | None = None
    upstreams: tuple[str, ...] = ()
    redis: str | None = None
    port: int | None = None
    capacity_tokens: int | None = None
    capacity_requests: int | None = None
    speed: float = 1.0
    prints_json: bool = False


async def run_demo(options: DemoOptions) -> None:
    """Run the system until SIGINT or SIGTERM, then end all of it.

    Raises:
        ConfigError: something asked for cannot be had.
        ChildFailed: a process did not start.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    story = Story(is_quiet=options.prints_json)
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(_start(options, stack, story), name="start")
        stopped = asyncio.create_task(stopping.wait(), name="stop")
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return
        system = await starting
        if options.prints_json:
            sys.stdout.write(orjson.dumps(system.as_json()).decode() + "\n")
            sys.stdout.flush()
        story.ready(system.as_json(), system.model)
        watching = asyncio.create_task(_watch(system, story), name="watch")
        await stopped
        watching.cancel()
        story.stopping()


async def _start(options: DemoOptions, stack: AsyncExitStack, story: Story) -> System:
    directory = Path(tempfile.mkdtemp(prefix="forebay-demo-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    given = _read(options.config)
    models = _models(configuration.parse(given, source=str(options.config or "defaults")))
    claims = claim_ports(options.gateways, options.port, stack.enter_context(ExitStack()))
    launcher = Launcher(directory, stack, story)
    redis = options.redis or await launcher.redis()
    engines: list[Engine] = [(url.rstrip("/"), None) for url in options.upstreams]
    engines = engines or await launcher.engines(options.engines, models, options.speed)
    urls = [url for url, _ in engines]
    config = directory / "forebay.yaml"
    config.write_text(yaml.safe_dump(_configure(given, options, redis, urls)), encoding="utf-8")
    gateways = await launcher.gateways(claims, config, urls)
    return System(gateways, redis, engines, config, models[0])


def _read(path: Path | None) -> dict[str, Any]:
    """Return the given configuration as a document, checked."""
    if path is None:
        return {}
    configuration.load(path)
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _configure(given: dict[str, Any], options: DemoOptions, redis: str, engines: list[str]) -> dict[str, Any]:
    """Return the configuration with this system's addresses in it.

    Client headers are trusted unless the file says otherwise: nobody else reaches a loopback port.
    """
    pools = given.get("pools") or [{"name": "demo", "models": [_DEFAULT_MODEL, "*"]}]
    return {
        **given,
        "redis": {**given.get("redis", {}), "url": redis},
        "headers": given.get("headers", {"priority": "trust", "tenant": "trust"}),
        "pools": [_configure_pool(pool, options, engines) for pool in pools],
    }


def _configure_pool(pool: dict[str, Any], options: DemoOptions, engines: list[str]) -> dict[str, Any]:
    capacity = dict(pool.get("capacity", {}))
    if options.capacity_tokens is not None:
        capacity["tokens"] = options.capacity_tokens
    if options.capacity_requests is not None:
        capacity["requests"] = options.capacity_requests
    return {**pool, "capacity": capacity, "backends": {**pool.get("backends", {}), "endpoints": engines}}


def _models(settings: Settings) -> list[str]:
    """Return names for the engines to serve: the pools' models, a pattern by a name that it matches."""
    names = [model.replace("*", "demo") for pool in settings.pools for model in pool.models if model != "*"]
    return [*(names or [_DEFAULT_MODEL]), "*"]


async def _watch(system: System, story: Story) -> None:
    """Tell of processes that end before their time; the others go on."""
    running = {asyncio.create_task(child.process.wait()): child for child in system.children()}
    while running:
        ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            child = running.pop(task)
            story.ended(child.name, child.pid, child.process.returncode)
