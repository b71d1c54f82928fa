"""One connection to Redis on which calls travel together: what gathers in a round trip goes with the next."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

_TRIES = 2  # a connection that the server has closed meanwhile fails once


@dataclass(slots=True, eq=False)
class _Call:
    """One command on its way, and the reply that its caller awaits."""

    packed: bytes
    reply: asyncio.Future[Any]
    deadline_s: float
    tries: int = 0


class Lane:
    """Runs commands in the order of asking, each within `timeout_s`.

    There is at most one round trip at a time, so replies cannot be mixed up: one that nobody awaits any more
    is read and dropped, and a connection that failed is never read again. Calls made at the same time share
    their system calls, which are most of their cost (`docs/queue.md`).

    Args:
        client: whose pool gives the connection, for good. Closing the client closes it.
        timeout_s: budget of one call, waiting and connecting included.
    """

    def __init__(self, client: Redis, *, timeout_s: float) -> None:
        self._pool = client.connection_pool
        self._timeout_s = timeout_s
        self._connection: AbstractConnection | None = None
        self._waiting: list[_Call] = []
        self._travelling: asyncio.Task[None] | None = None

    async def call(self, words: tuple[str | int, ...]) -> Any:
        """Return the reply to a command that does no harm when it runs twice.

        Raises:
            RedisError: Redis refuses the command, or cannot be reached.
            OSError: as above; in particular `TimeoutError`, when the time is up.
        """
        loop = asyncio.get_running_loop()
        packed = pack_command(words)  # type: ignore[arg-type]  # its stub knows tuples of one word only
        call = _Call(packed, loop.create_future(), loop.time() + self._timeout_s)
        self._waiting.append(call)
        if self._travelling is None:
            self._travelling = loop.create_task(self._travel(), name="lane")
        return await call.reply

    async def _travel(self) -> None:
        """Make round trips until nobody waits."""
        try:
            while self._waiting:
                calls = [call for call in self._waiting if not call.reply.done()]
                self._waiting = []
                if calls:
                    await self._round_trip(calls)
        finally:
            self._travelling = None

    async def _round_trip(self, calls: list[_Call]) -> None:
        """Answer calls, or put those back that may try again; those that may not fail."""
        try:
            async with asyncio.timeout_at(calls[0].deadline_s):
                await self._exchange(calls)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            if self._connection is not None:
                await self._connection.disconnect(nowait=True)
            now_s = asyncio.get_running_loop().time()
            unanswered = [call for call in calls if not call.reply.done()]
            for call in unanswered:
                if call.tries == _TRIES or now_s >= call.deadline_s:
                    call.reply.set_exception(error)
            self._waiting[:0] = unanswered

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
            if call.reply.done():  # the caller was cancelled
                continue
            if isinstance(reply, ResponseError):
                call.reply.set_exception(reply)
            else:
                call.reply.set_result(reply)
