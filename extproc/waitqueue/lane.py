"""One connection to Redis on which calls travel together: what gathers in a round trip goes with the next."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

_TRIES = 2  # a connection that the server has closed meanwhile fails once
_TICKS = 5  # a budget is counted in so many parts
_CLOCK_S = 0.0005  # uvloop's clock ticks in milliseconds
_AT_ONCE = -math.inf
SPACING_S = 0.002
"""At 1,200 requests a second this halves what Redis spends on one (docs/benchmarks.md)."""


class _Budget:
    """Ends an ``async with`` with `TimeoutError` after so many seconds in which our own loop ran.

    A loop that stalled for long finds its timers due before it has read what came meanwhile. Counted in
    ticks, a stall costs one of them, so that Redis is not blamed for it.
    """

    def __init__(self, seconds: float) -> None:
        self._tick_s = seconds / _TICKS
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._wait(_TICKS)

    async def __aexit__(self, *exc_info: object) -> None:
        self._next.cancel()
        await self._timeout.__aexit__(*exc_info)  # type: ignore[arg-type]

    def _wait(self, ticks: int) -> None:
        loop = asyncio.get_running_loop()
        if ticks:
            self._next = loop.call_later(self._tick_s, self._wait, ticks - 1)
        else:
            self._timeout.reschedule(loop.time())


@dataclass(slots=True, eq=False)
class _Call:
    """One command on its way, and the reply that its caller awaits."""

    packed: bytes
    reply: asyncio.Future[Any]
    due_s: float
    tries: int = 0

    def answer(self, reply: object) -> None:
        """Hand over the reply, unless the caller was cancelled and nobody awaits it."""
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


class Lane:
    """Runs commands in the order of asking.

    There is at most one round trip at a time, so replies cannot be mixed up: one that nobody awaits any more
    is read and dropped, and a connection that failed is never read again. Calls made at the same time share
    their system calls, which are most of their cost (`docs/queue.md`).

    Args:
        client: whose pool gives the connection, for good. Closing the client closes it.
        timeout_s: budget of a round trip, connecting included. A call that finds one under way fails with it
            when Redis is silent, and may take twice as long when Redis is slow.
        spacing_s: least time between the starts of two round trips, so that a busy lane makes fewer of them;
            also how long a patient call waits for company. An idle lane starts at once.
    """

    def __init__(self, client: Redis, *, timeout_s: float, spacing_s: float = SPACING_S) -> None:
        self._pool = client.connection_pool
        self._timeout_s = timeout_s
        self._spacing_s = spacing_s
        self._connection: AbstractConnection | None = None
        self._waiting: list[_Call] = []
        self._next_s = _AT_ONCE
        self._departure: asyncio.TimerHandle | None = None
        self._departs_s = math.inf
        self._journey: asyncio.Task[None] | None = None

    async def call(self, words: tuple[str | int, ...], *, is_patient: bool = False) -> Any:
        """Return the reply to a command that does no harm when it runs twice.

        Args:
            words: the command.
            is_patient: wait a little for a call in a hurry to travel with.

        Raises:
            RedisError: Redis refuses the command, or cannot be reached.
            OSError: as above; in particular `TimeoutError`, when Redis is silent.
            UnicodeEncodeError: a word holds what UTF-8 cannot express.
        """
        loop = asyncio.get_running_loop()
        packed = pack_command(words)  # type: ignore[arg-type]  # its stub knows tuples of one word only
        due_s = loop.time() + self._spacing_s if is_patient else _AT_ONCE
        call = _Call(packed, loop.create_future(), due_s)
        self._waiting.append(call)
        if self._journey is None and max(due_s, self._next_s) < self._departs_s:
            self._plan()
        return await call.reply

    def _plan(self) -> None:
        """Set out as soon as somebody is in a hurry, though not too soon after the last time."""
        if self._departure is not None:
            self._departure.cancel()
        self._departure, self._departs_s = None, math.inf
        self._waiting = [call for call in self._waiting if not call.reply.done()]
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        first_s = min(call.due_s for call in self._waiting)
        start_s = max(first_s, self._next_s)
        if start_s > loop.time() + _CLOCK_S:
            self._departure, self._departs_s = loop.call_at(start_s, self._plan), start_s
            return
        if first_s == _AT_ONCE:  # a trip of the patient alone holds up nobody who comes next
            self._next_s = loop.time() + self._spacing_s
        self._journey = loop.create_task(self._travel(), name="lane")

    async def _travel(self) -> None:
        try:
            await self._round_trip()
        finally:
            self._journey = None
        self._plan()

    async def _round_trip(self) -> None:
        """Answer who waits; where the connection breaks, leave those waiting that may try again."""
        calls, self._waiting = self._waiting, []
        try:
            async with _Budget(self._timeout_s):
                await self._exchange(calls)
        except Exception as error:  # noqa: BLE001 - whatever it was, those who wait must hear of it
            if self._connection is not None:
                await self._connection.disconnect(nowait=True)
            is_silent = isinstance(error, (TimeoutError, RedisTimeoutError))
            self._waiting = calls + self._waiting
            for call in self._waiting:
                if is_silent or call.tries == _TRIES:
                    call.answer(error)

    async def _exchange(self, calls: list[_Call]) -> None:
        for call in calls:
            call.tries += 1
        if self._connection is None:
            self._connection = await self._pool.get_connection()
        connection = self._connection
        if not connection.is_connected:
            await connection.connect()
        await connection.send_packed_command([call.packed for call in calls], check_health=False)
        for call in calls:
            try:
                reply = await connection.read_response(timeout=math.inf)  # the round trip is timed as a whole
            except ResponseError as error:
                reply = error
            call.answer(reply)
