"""The one way out: what is given back is posted here, without awaiting, and kept until the queue has it.

Envoy resets the stream after every exchange, so a handler is cancelled at its next await even when all
went well; a release awaited in `finally` was lost in a third to three quarters of the exchanges.
"""

from __future__ import annotations

import asyncio

from extproc.admission.ports import WaitQueue
from extproc.domain.errors import QueueUnavailable

_RETRY_S = 0.2


class Outbox:
    """Leavings of one pool, in order of posting."""

    def __init__(self, queue: WaitQueue) -> None:
        self._queue = queue
        self._leavings: list[tuple[str, str]] = []
        self._posted = asyncio.Event()
        self._is_sending = False

    def post(self, request_id: str, attempt: str) -> None:
        """Give back whatever an attempt holds. Returns at once and never fails."""
        self._leavings.append((request_id, attempt))
        self._posted.set()

    @property
    def is_empty(self) -> bool:
        """True when the queue has everything that was posted."""
        return not self._leavings and not self._is_sending

    async def run(self) -> None:
        """Deliver until cancelled. One call takes all that gathered during the call before."""
        while True:
            await self._posted.wait()
            await self.step()

    async def step(self) -> None:
        """Deliver what was posted so far; on failure keep it and pause."""
        batch, self._leavings = self._leavings, []
        self._posted.clear()
        self._is_sending = True
        try:
            await self._queue.leave(batch)
        except QueueUnavailable:
            self._keep(batch)
            await asyncio.sleep(_RETRY_S)
        except asyncio.CancelledError:
            self._keep(batch)
            raise
        finally:
            self._is_sending = False

    def _keep(self, batch: list[tuple[str, str]]) -> None:
        self._leavings = batch + self._leavings
        self._posted.set()
