"""Context length of a pool, as its engines tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from extproc.control.capacity import ReadEngines

_log = structlog.get_logger()


class LearnedContext:
    """Knows the context length that all engines of a pool have, which is the shortest of theirs.

    An engine that does not answer is taken at its last word.

    Args:
        endpoints: the engines' base URLs.
        read_engines: context length of each engine in tokens, None where unknown.
        period_s: time between two looks. A model's context changes with the engine's start only.
    """

    def __init__(
        self, endpoints: Sequence[str], *, read_engines: ReadEngines, period_s: float = 15.0
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._read_engines = read_engines
        self._period_s = period_s
        self._known: dict[str, int] = {}

    @property
    def tokens(self) -> int | None:
        """The context length; None until an engine has told its own."""
        return min(self._known.values(), default=None)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._period_s)

    async def step(self) -> None:
        """Look once."""
        before = self.tokens
        readings = await self._read_engines(self._endpoints)
        self._known |= {e: t for e, t in zip(self._endpoints, readings, strict=True) if t is not None}
        if self.tokens != before:
            _log.info("context", tokens=self.tokens, engines=len(self._known))
