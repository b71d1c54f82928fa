"""Capacity of a pool: as configured, or as its engines report it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from extproc.admission.ports import Capacity

_log = structlog.get_logger()

OPERATING_POINT = 0.95
"""Part of the KV tokens that may be booked: above it pre-emption starts (`docs/capacity.md`)."""

ReadEngines = Callable[[Sequence[str]], Awaitable[list[int | None]]]
SetCapacity = Callable[[Capacity], Awaitable[None]]


class AutoCapacity:
    """Keeps `capacity.tokens: auto` at the operating point of the engines that answer.

    An engine that does not answer keeps the share it had: a missing metric is not a missing engine. Until any
    engine has answered, only requests are limited.

    Args:
        endpoints: the engines' base URLs.
        requests: limit by number, or None.
        read_engines: KV-cache tokens of each engine, None where unknown.
        set_capacity: tells the queue.
        period_s: time between two looks.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        requests: int | None,
        *,
        read_engines: ReadEngines,
        set_capacity: SetCapacity,
        period_s: float = 5.0,
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._requests = requests
        self._read_engines = read_engines
        self._set_capacity = set_capacity
        self._period_s = period_s
        self._known: dict[str, int] = {}
        self._current: Capacity | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._period_s)

    async def step(self) -> None:
        """Look once, and tell the queue if something changed."""
        readings = await self._read_engines(self._endpoints)
        self._known |= {e: t for e, t in zip(self._endpoints, readings, strict=True) if t is not None}
        tokens = int(sum(self._known.values()) * OPERATING_POINT) or None
        capacity = Capacity(tokens, self._requests)
        if capacity != self._current:
            _log.info("capacity", tokens=tokens, requests=self._requests, engines=len(self._known))
            self._current = capacity
            await self._set_capacity(capacity)
