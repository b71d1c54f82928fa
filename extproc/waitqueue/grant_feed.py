"""Hears the grants that other replicas' calls make for our waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

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
        on_reconnect: called whenever Redis has confirmed the subscription, the first time included.
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
        self._is_up = True

    async def run(self) -> None:
        """Listen until cancelled, through every loss of the connection."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError) as error:
                if self._is_up:
                    _log.warning("grant feed lost", error=f"{type(error).__name__}: {error}")
                self._is_up = False
                await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        async with self._client.pubsub() as subscription:
            await subscription.subscribe(*self._listeners)
            async for message in subscription.listen():
                self._receive(message)

    def _receive(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "message":
            waited_ms, attempt, request_id = message["data"].split(" ", 2)
            self._listeners[message["channel"]](request_id, attempt, int(waited_ms))
        elif message["type"] == "subscribe" and message["data"] == len(self._listeners):
            if not self._is_up:
                _log.info("grant feed back")
            self._is_up = True
            self._on_reconnect()
