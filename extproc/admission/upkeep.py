"""Upkeep of one pool by one replica: renew what is held, take back what nobody renews, read the figures."""

from __future__ import annotations

import asyncio
import random

from extproc.admission.mailbox import Mailbox
from extproc.admission.ports import Observer, Standing, WaitQueue
from extproc.admission.service import Admission, HandedOver
from extproc.domain.errors import QueueUnavailable


class Upkeep:
    """The heartbeat of one pool.

    Args:
        queue: what to keep up.
        mailbox: what this replica holds.
        admission: is given the pool's figures.
        observer: hears of them, too.
        sweep_every_s: period of sweeps and of reading the figures.
        renew_every_s: period of renewals.
    """

    def __init__(
        self,
        queue: WaitQueue,
        mailbox: Mailbox,
        admission: Admission,
        observer: Observer,
        *,
        sweep_every_s: float,
        renew_every_s: float,
    ) -> None:
        self._queue = queue
        self._mailbox = mailbox
        self._admission = admission
        self._observer = observer
        self._sweep_every_s = sweep_every_s
        self._renew_every_s = renew_every_s
        self._renew_at = 0.0
        self._hurry = asyncio.Event()

    def renew_soon(self) -> None:
        """Ask for a renewal at once: grants may have been missed, or the store has lost its memory."""
        self._renew_at = 0.0
        self._hurry.set()

    async def run(self) -> None:
        """Keep up until cancelled."""
        while True:
            await self.step()
            period_s = self._sweep_every_s * random.uniform(0.9, 1.1)  # noqa: S311 - keeps replicas out of step
            try:
                async with asyncio.timeout(period_s):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    async def step(self) -> None:
        """Do one round. A store that is away is the queue's business, not ours."""
        self._hurry.clear()
        try:
            if asyncio.get_running_loop().time() >= self._renew_at:
                await self.renew()
            self._observer.swept(await self._queue.sweep())
            state = await self._queue.state()
        except QueueUnavailable:
            return
        self._admission.state = state
        self._observer.saw(state)

    async def renew(self) -> None:
        """Renew all holdings; a waiter whose place was taken over ends its exchange.

        Envoy has moved on then, and if it has not, it brings the request again.
        """
        self._renew_at = asyncio.get_running_loop().time() + self._renew_every_s
        self._mailbox.grow()
        holdings = self._mailbox.holdings()
        for holding, standing in zip(holdings, await self._queue.renew(holdings), strict=True):
            waiter = self._mailbox.get(holding.ticket.attempt)
            if waiter is not None and standing is Standing.TAKEN_OVER and waiter.is_waiting:
                waiter.let_go(HandedOver("taken over"))
