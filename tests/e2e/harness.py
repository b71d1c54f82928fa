"""The whole system as a user starts it, with real Envoys, Redis and engines: `forebay demo --json`, or containers."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
import redis
from multidict import CIMultiDictProxy

POOL = "demo"
TAG = f"{{forebay:v1:{POOL}}}:"

# On a busy machine a store that answers late is no store that is lost.
_PATIENCE = {"FOREBAY_REDIS__TIMEOUT_S": "1"}

# Read in one step inside Redis, so that what is seen was true at one time.
_SAMPLE = """
local tokens = 0
for _, t in ipairs(redis.call('HVALS', KEYS[2])) do tokens = tokens + t end
return {redis.call('ZCARD', KEYS[1]), tokens, redis.call('ZCARD', KEYS[3])}
"""


@dataclass
class Held:
    """What Redis says is held and waits."""

    requests: int
    tokens: int
    waiting: int


@dataclass
class System(abc.ABC):
    """A running system, however it was started.

    Attributes:
        described: what `forebay demo --json` says of it.
        store: its Redis.
    """

    described: dict
    store: redis.Redis

    @property
    def urls(self) -> list[str]:
        return [gateway["url"] for gateway in self.described["gateways"]]

    def gateway(self, index: int) -> dict:
        return self.described["gateways"][index]

    @abc.abstractmethod
    def kill(self, kind: str, index: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to `extproc` or `envoy` of a gateway."""

    @abc.abstractmethod
    def log(self, name: str) -> str:
        """Return what a part has logged, such as `server-1`."""

    def held(self) -> Held:
        keys = [TAG + name for name in ("leases", "reservations", "waiting")]
        return Held(*self.store.eval(_SAMPLE, 3, *keys))

    def keys_that_stay(self) -> set[str]:
        return {key for key in self.store.scan_iter() if self.store.ttl(key) == -1}

    def tell_troubles(self) -> None:
        """Print what the servers complained of; pytest shows it when the test has failed."""
        for name in (f"server-{number}" for number, _ in enumerate(self.urls, 1)):
            for line in self.log(name).splitlines():
                if '"level":"info"' not in line:
                    print(f"{name}: {line}")

    async def arrivals(self) -> list[dict]:
        """Return what reached the engines, in order of time."""
        seen = []
        async with aiohttp.ClientSession() as session:
            for engine in self.described["engines"]:
                async with session.get(f"{engine['url']}/sim/arrivals") as page:
                    seen += await page.json()
        return sorted(seen, key=lambda arrival: arrival["at"])


@dataclass
class Demo(System):
    """A system of processes."""

    process: subprocess.Popen[bytes]

    def kill(self, kind: str, index: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.gateway(index)[f"pid_{kind}"], number)

    def log(self, name: str) -> str:
        return (Path(self.described["config"]).parent / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.process.stdout.close()
        self.store.connection_pool.disconnect()


@contextlib.contextmanager
def run_demo(folder: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[System]:
    """Start a demo, wait for its JSON, and end it; nothing of it may be left."""
    errors = folder / "demo.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "extproc", "demo", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **_PATIENCE, **(environment or {})},
        )
    line = process.stdout.readline()
    assert line, f"the demo did not start:\n{errors.read_text()}"
    described = json.loads(line)
    store = redis.Redis.from_url(described["redis"], decode_responses=True)
    pids = [g[k] for g in described["gateways"] for k in ("pid_envoy", "pid_extproc")]
    pids += [engine["pid"] for engine in described["engines"]]
    system = Demo(described, store, process)
    try:
        yield system
    finally:
        system.tell_troubles()
        system.stop()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "processes were left behind"


class Sampler:
    """Reads what is held, again and again, from a thread of its own."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[Held] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            self.samples.append(self._system.held())
            time.sleep(0.001)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def chat(tokens: int = 8, *, text: str = "Hello", stream: bool = False, **more) -> dict:
    """Return a chat body."""
    return {
        "model": "llama-3.3-70b",
        "max_tokens": tokens,
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
        **more,
    }


async def post(
    session: aiohttp.ClientSession, url: str, body: dict, **headers: str
) -> tuple[int, CIMultiDictProxy[str], bytes]:
    """Post a chat; give status, headers and body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=named) as response:
        return response.status, response.headers, await response.read()


async def until_nothing_is_held(system: System, timeout_s: float) -> float:
    """Wait until nothing is held and nobody waits; return the seconds it took."""
    began = time.monotonic()
    while (held := system.held()) != Held(0, 0, 0):
        assert time.monotonic() - began < timeout_s, f"after {timeout_s} s: {held}"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def until_waiting(system: System, number: int, timeout_s: float = 10) -> None:
    """Wait until so many wait."""
    give_up_at = time.monotonic() + timeout_s
    while system.held().waiting != number:
        assert time.monotonic() < give_up_at, f"{system.held()} instead of {number} waiting"
        await asyncio.sleep(0.01)


async def until_held(system: System, number: int = 1, timeout_s: float = 10) -> None:
    """Wait until so many are held."""
    give_up_at = time.monotonic() + timeout_s
    while system.held().requests != number:
        assert time.monotonic() < give_up_at, f"{system.held()} instead of {number} held"
        await asyncio.sleep(0.01)
