"""An HTTP client that costs next to nothing, for measuring what costs little itself.

It sends bytes prepared beforehand over connections that stay, and reads no more of an answer than its status
and its length. aiohttp takes ten times the processor time, on the cores that the measured programs need.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from extproc.bench.workload import poisson

_OPEN_CONNECTIONS = 16
"""Made beforehand for an open loop; more are made as answers take longer."""


class Unanswered(ConnectionError):
    """The server closed the connection, or sent what this client does not read."""


@dataclass(slots=True)
class Latencies:
    """What came of one load.

    Attributes:
        seconds: it lasted.
        ok_s: time of each answer with status 200.
        failed: answers with another status.
    """

    seconds: float = 0.0
    ok_s: list[float] = field(default_factory=list)
    failed: int = 0

    def note(self, status: int, took_s: float) -> None:
        """Count one answer."""
        if status == 200:
            self.ok_s.append(took_s)
        else:
            self.failed += 1


class Connection(asyncio.Protocol):
    """One connection that carries one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._length = 0
        self._transport: asyncio.Transport | None = None
        self._status: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._transport = None
        self._finish(Unanswered(f"the connection was closed: {exc}"))

    def data_received(self, data: bytes) -> None:
        """Read on, until the answer is whole."""
        self._received += data
        if not self._length:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _content_length(bytes(self._received[:end]))
            if length is None:
                self._finish(Unanswered("an answer without content-length"))
                return
            self._length = end + 4 + length
        if len(self._received) >= self._length:
            self._finish(int(self._received[9:12]))

    async def post(self, request: bytes) -> int:
        """Send a request and return the status of its answer.

        Raises:
            Unanswered: see there.
        """
        if self._transport is None:
            raise Unanswered("the connection is closed")
        self._received.clear()
        self._length = 0
        self._status = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._status

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    def _finish(self, ending: int | Unanswered) -> None:
        if self._status is None or self._status.done():
            return
        if isinstance(ending, int):
            self._status.set_result(ending)
        else:
            self._status.set_exception(ending)


def _content_length(head: bytes) -> int | None:
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else None


def post(path: str, body: bytes) -> bytes:
    """Return a request, ready to be sent."""
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def _connections(port: int, number: int) -> AsyncIterator[list[Connection]]:
    made: list[Connection] = []
    try:
        for _ in range(number):
            made.append(await _connect(port))  # noqa: PERF401 - those made must be closed should one fail
        yield made
    finally:
        for connection in made:
            connection.close()


async def _connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def closed_loop(port: int, requests: Iterator[bytes], *, clients: int, seconds: float) -> Latencies:
    """Let clients send, each as soon as its last answer came: what the system can carry.

    Raises:
        Unanswered: see there.
    """
    seen = Latencies()

    async def client(connection: Connection) -> None:
        while time.perf_counter() < stop_s:
            request, sent_s = next(requests), time.perf_counter()
            seen.note(await connection.post(request), time.perf_counter() - sent_s)

    async with _connections(port, clients) as connections:
        start_s = time.perf_counter()
        stop_s = start_s + seconds
        async with asyncio.TaskGroup() as tasks:
            for connection in connections:
                tasks.create_task(client(connection))
        seen.seconds = time.perf_counter() - start_s
    return seen


async def open_loop(
    port: int, requests: Iterator[bytes], *, rate_per_s: float, seconds: float, seed: int = 0
) -> Latencies:
    """Send at exponential gaps, whatever the answers do: what a client sees.

    Raises:
        Unanswered: see there.
    """
    seen = Latencies()

    async def one(request: bytes) -> None:
        connection = idle.pop() if idle else await _connect(port)
        sent_s = time.perf_counter()  # uvloop's clock ticks in milliseconds
        seen.note(await connection.post(request), time.perf_counter() - sent_s)
        idle.append(connection)

    async with _connections(port, _OPEN_CONNECTIONS) as idle:
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for at_s in poisson(rate_per_s, seconds, random.Random(seed)):
                await asyncio.sleep(start_s + at_s - time.perf_counter())
                tasks.create_task(one(next(requests)))
        seen.seconds = time.perf_counter() - start_s
    return seen
