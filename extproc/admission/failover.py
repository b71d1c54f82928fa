"""What happens while the shared queue is away, and how its state is healed when it comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

import structlog

from extproc.admission.mailbox import Mailbox
from extproc.admission.ports import (
    Capacity,
    Holding,
    Observer,
    Placement,
    PoolState,
    Refused,
    Standing,
    Swept,
    WaitQueue,
)
from extproc.domain.errors import QueueUnavailable
from extproc.domain.outcome import Refusal

T = TypeVar("T")
_log = structlog.get_logger()

_MAX_DEBTS = 100_000  # older ones are taken back by the store's sweep anyway


class StoreLoss(StrEnum):
    """What to do with requests while the shared queue is away.

    local: keep order and limit inside this replica, with its part of the last known capacity.
    open: let everything pass.
    closed: refuse new requests with 503; those that wait keep their place.
    """

    LOCAL = "local"
    OPEN = "open"
    CLOSED = "closed"


MakeLocal = Callable[[Capacity, int], WaitQueue]
"""Makes an empty queue in memory from a capacity and the number of replicas that share it."""


class FailoverQueue:
    """A `WaitQueue` that never raises `QueueUnavailable` from `enqueue`, whatever the store does.

    The store counts as lost when a call fails twice in a row: one slow call, or an event loop that was late
    to read the answer, is no loss. From then on renewals and sweeps try it. When one succeeds the store has
    been told of everything this replica holds, granted meanwhile or not, so that its figures are right again
    within that one call.

    Args:
        primary: the shared queue.
        mailbox: what this replica holds.
        observer: hears of loss and return.
        policy: see `StoreLoss`.
        make_local: see `MakeLocal`.
        replicas: replicas alive as last known, this one included.
    """

    def __init__(
        self,
        primary: WaitQueue,
        mailbox: Mailbox,
        observer: Observer,
        *,
        policy: StoreLoss,
        make_local: MakeLocal,
        replicas: Callable[[], int],
    ) -> None:
        self._primary = primary
        self._mailbox = mailbox
        self._observer = observer
        self._policy = policy
        self._make_local = make_local
        self._replicas = replicas
        self._local: WaitQueue | None = None
        self._capacity = Capacity(None, None)
        self._debts: list[tuple[str, str]] = []

    @property
    def is_up(self) -> bool:
        """True while the shared queue decides."""
        return self._local is None

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        """Ask the shared queue, or follow the policy while it is away."""
        if self._local is None:
            try:
                return await _twice(lambda: self._primary.enqueue(holding, max_requests=max_requests))
            except QueueUnavailable as error:
                await self._lose(error)
        if self._policy is StoreLoss.CLOSED:
            return Refused(Refusal.STORE_UNAVAILABLE)
        if self._local is None:  # it came back while we heard that it was lost
            return await self.enqueue(holding, max_requests=max_requests)
        return await self._local.enqueue(holding, max_requests=max_requests)

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Give back; while the store is away, it is told when it returns."""
        if self._local is None:
            try:
                await _twice(lambda: self._primary.leave(tickets))
            except QueueUnavailable as error:
                await self._lose(error)
            else:
                return
        self._debts = [*self._debts, *tickets][-_MAX_DEBTS:]
        if self._local is not None:
            await self._local.leave(tickets)

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Renew; while the store is away, this is what tries it."""
        believed = await self._renew_local(holdings)
        try:
            standings = await _twice(lambda: self._primary.renew(holdings))
        except QueueUnavailable as error:
            if self._local is None:
                await self._lose(error)
            return believed
        if self._local is not None:
            await self._regain()
        return standings

    async def sweep(self) -> Swept:
        """Sweep whichever queue decides, once it is known which."""
        if self._local is not None:
            await self.renew(self._mailbox.holdings())
        return await (self._local or self._primary).sweep()

    async def set_capacity(self, capacity: Capacity) -> None:
        """Set the capacity; a store that is away is told at its return."""
        self._capacity = capacity
        try:
            await self._primary.set_capacity(capacity)
        except QueueUnavailable as error:
            if self._local is None:
                await self._lose(error)

    async def state(self) -> PoolState:
        """Read the figures of whichever queue decides; while nobody may, only the store's would be true."""
        if self._local is None or self._policy is StoreLoss.CLOSED:
            return await self._primary.state()
        return replace(await self._local.state(), held_token_s=None)

    async def _renew_local(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Return where holdings stand as far as this replica knows; its own queue forgets, too."""
        if self._local is None or self._policy is StoreLoss.CLOSED:
            return [Standing.HELD if h.is_granted else Standing.WAITING for h in holdings]
        return await self._local.renew(holdings)

    async def _lose(self, error: QueueUnavailable) -> None:
        """Go on alone: with the leases held, and the waiters in their order."""
        if self._local is not None:
            return
        capacity = Capacity(None, None) if self._policy is StoreLoss.OPEN else self._capacity
        self._local = local = self._make_local(capacity, max(1, self._replicas()))
        _log.error("shared queue lost", error=str(error), policy=self._policy, replicas=self._replicas())
        self._observer.store_changed(is_up=False)
        if self._policy is not StoreLoss.CLOSED:
            await local.renew(self._mailbox.holdings())
            await local.sweep()

    async def _regain(self) -> None:
        """Let the shared queue decide again; it knows what was held when the renewal began."""
        self._local = None
        debts, self._debts = self._debts, []
        _log.info("shared queue back", left_meanwhile=len(debts))
        self._observer.store_changed(is_up=True)
        try:
            await self._primary.leave(debts)
            await self._primary.renew(self._mailbox.holdings())  # what came in during the first renewal
        except QueueUnavailable as error:
            self._debts = [*debts, *self._debts]
            await self._lose(error)


async def _twice(call: Callable[[], Awaitable[T]]) -> T:
    """Call the shared queue, and once more if that fails: whatever is asked of it may be asked twice."""
    try:
        return await call()
    except QueueUnavailable:
        return await call()
