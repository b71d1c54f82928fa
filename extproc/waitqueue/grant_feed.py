"""Hears the grants that other replicas' calls make for our waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from extproc.admission.ports import GrantListener
from extproc.waitqueue.keys import grants_channel

_RETRY_S = 0.5
_log = structlog.get_logger()


class GrantFeed:
    """One subscription for all pools of a replica.

    A message that is lost (the connection broke, Redis failed over) is made up for by the next renewal;
    `on_reconnect` asks for one at once.

    Args:
        client: a client of its own, without a read timeout.
        replica: whose grants to hear.
        listeners: for each pool, who is told.
        on_reconnect: called after every subscription, the first included.
    """

    def __init__(
        self,
        client: Redis,
        replica: str,
        *,
        listeners: Mapping[str, GrantListener],
        on_reconnect: Callable[[], None],
    ) -> None:
        self._client = client
        self._listeners = {grants_channel(pool, replica): listener for pool, listener in listeners.items()}
        self._on_reconnect = on_reconnect

    async def run(self) -> None:
        """Listen until cancelled, through every loss of the connection."""
        is_up = True
        while True:
            try:
                await self._listen()
            except (RedisError, OSError) as error:
                if is_up:
                    _log.warning("grant feed lost", error=f"{type(error).__name__}: {error}")
                is_up = False
                await asyncio.sleep(_RETRY_S)
            else:
                is_up = True

    async def _listen(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(*self._listeners)
            self._on_reconnect()
            async for message in subscription.listen():
                waited_ms, attempt, request_id = message["data"].split(" ", 2)
                self._listeners[message["channel"]](request_id, attempt, int(waited_ms))
