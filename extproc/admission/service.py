"""Admission to one pool: the use case the product is about."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

from extproc.admission.mailbox import Mailbox, Waiter
from extproc.admission.outbox import Outbox
from extproc.admission.ports import (
    Granted,
    Observer,
    PoolState,
    Refused,
    Ticket,
    WaitQueue,
)
from extproc.domain.errors import ForebayError
from extproc.domain.forecast import Expectation
from extproc.domain.outcome import Refusal, Shedding, retry_after_s
from extproc.domain.request import InferenceRequest
from extproc.domain.tokens import Estimate

_MOST_TOKENS = 2**40
"""Booked for one request at most. No engine holds as many, and sums of thousands stay exact in the store; a
client's limit of 2**62 would wrap the figures of a pool that counts only requests."""

_MESSAGES = {
    Refusal.NEVER_FITS: "The request needs {tokens} tokens, more than the pool can ever hold.",
    Refusal.QUEUE_FULL: "The queue is full.",
    Refusal.NOT_QUEUED: "There is no room, and the request asked not to be queued.",
    Refusal.WAIT_TIMEOUT: "No room came free within {max_wait_s:g} s.",
    Refusal.STORE_UNAVAILABLE: "The shared queue is unavailable.",
    Refusal.DRAINING: "This gateway is shutting down.",
}


class Shed(ForebayError):
    """The request may not go on."""

    def __init__(self, shedding: Shedding) -> None:
        super().__init__(shedding.refusal.value)
        self.shedding = shedding


class HandedOver(ForebayError):
    """The place in the queue was left for whoever Envoy brings the request to next."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to go on, valid inside the ``async with`` of `Admission.admit`."""

    tokens: int
    waited_ms: int


class Admission:
    """Admits requests to one pool.

    Args:
        queue: order and room, shared by the cluster.
        mailbox: where grants for this replica arrive.
        outbox: the way out.
        observer: hears what happens.
        replica: this process' name, unique for each start.
        max_requests: waiters the queue takes.
    """

    def __init__(
        self,
        queue: WaitQueue,
        mailbox: Mailbox,
        outbox: Outbox,
        observer: Observer,
        *,
        replica: str,
        max_requests: int,
    ) -> None:
        self._queue = queue
        self._mailbox = mailbox
        self._outbox = outbox
        self._observer = observer
        self._attempts = (f"{replica}/{n}" for n in count(1))
        self._max_requests = max_requests
        self._is_draining = False
        self._can_hand_over = False
        self.state: PoolState | None = None
        """The pool's figures as last read; kept fresh by `Upkeep`."""

    @asynccontextmanager
    async def admit(
        self,
        request: InferenceRequest,
        estimate: Estimate,
        *,
        can_move: bool = False,
        expectation: Expectation | None = None,
    ) -> AsyncIterator[Grant]:
        """Hold a grant for the body of the ``async with``; whatever is held comes back at its end.

        Args:
            request: who wants to go on.
            estimate: what to book.
            expectation: how the answer is expected to go on; the reservation grows with it.
            can_move: True when Envoy brings the request to another replica if this one ends the exchange
                without an answer.

        Raises:
            Shed: the request may not go on.
            HandedOver: the place was left for another replica; end the exchange without an answer.
        """
        if self._is_draining:
            raise self._refused_while_draining(request, can_move=can_move)
        tokens = min(estimate.reservation_tokens, _MOST_TOKENS)
        ticket = Ticket(request, tokens, next(self._attempts), expectation)
        with self._mailbox.expect(ticket, can_move=can_move) as waiter:  # before enqueue: no lost wake-up
            try:
                waited_ms = await self._enqueue(waiter)
                self._observer.admitted(request, waited_ms / 1000)
                yield Grant(ticket.tokens, waited_ms)
            finally:  # the one way out; it must not await
                if not waiter.has_let_go:
                    self._outbox.post(request.id, ticket.attempt)

    def drain(self, *, can_hand_over: bool) -> None:
        """Take nothing new.

        Args:
            can_hand_over: another replica lives; waiters that can move are left to it.
        """
        self._is_draining, self._can_hand_over = True, can_hand_over
        if can_hand_over:
            for waiter in self._mailbox.waiting():
                if waiter.can_move:
                    waiter.let_go(HandedOver("draining"))

    def shed_waiters(self) -> None:
        """Refuse everybody who still waits, as the last step of a drain."""
        for waiter in self._mailbox.waiting():
            waiter.fail(self._shed(waiter.holding.ticket, Refusal.DRAINING))

    @property
    def holds_anything(self) -> bool:
        """True while an exchange is held or something is still to be given back."""
        return not (self._mailbox.is_empty and self._outbox.is_empty)

    async def _enqueue(self, waiter: Waiter) -> int:
        """Return the milliseconds waited until the grant."""
        request = waiter.holding.ticket.request
        try:
            placement = await self._queue.enqueue(waiter.holding, max_requests=self._max_requests)
            if isinstance(placement, Refused):
                raise self._refused(waiter.holding.ticket, placement)
            if isinstance(placement, Granted):
                waiter.deliver(placement.waited_ms)
                return await waiter.grant()  # at once, unless a drain was quicker
            return await self._wait(waiter, placement.waited_ms)
        except Shed as shed:
            self._observer.shed(request, shed.shedding.refusal)
            raise
        except HandedOver:
            self._observer.handed_over(request)
            raise
        except asyncio.CancelledError:
            self._observer.withdrawn(request)
            raise

    async def _wait(self, waiter: Waiter, waited_ms: int) -> int:
        ticket = waiter.holding.ticket
        try:
            async with asyncio.timeout(max(0.0, ticket.request.max_wait_s - waited_ms / 1000)):
                return await waiter.grant()
        except TimeoutError:
            if waiter.is_waiting:
                raise self._shed(ticket, Refusal.WAIT_TIMEOUT) from None
            return await waiter.grant()  # the grant came in the same breath

    def _refused_while_draining(self, request: InferenceRequest, *, can_move: bool) -> ForebayError:
        if can_move and self._can_hand_over:
            self._observer.handed_over(request)
            return HandedOver("draining")
        self._observer.shed(request, Refusal.DRAINING)
        return self._shed(Ticket(request, 1, ""), Refusal.DRAINING)

    def _refused(self, ticket: Ticket, refused: Refused) -> Shed:
        wait_s = retry_after_s(refused.ahead_tokens, refused.drain_tokens_per_s, jitter=random.random())  # noqa: S311 - spreads clients, hides nothing
        return self._shed(ticket, refused.refusal, wait_s)

    def _shed(self, ticket: Ticket, refusal: Refusal, wait_s: int | None = None) -> Shed:
        """Return the refusal as the client will read it; only overload and absence name a time."""
        if refusal is Refusal.NEVER_FITS:
            wait_s = None
        elif wait_s is None:
            wait_s = self._retry_after_s(ticket)
        message = _MESSAGES[refusal].format(tokens=ticket.tokens, max_wait_s=ticket.request.max_wait_s)
        return Shed(Shedding(refusal, message, retry_after_s=wait_s))

    def _retry_after_s(self, ticket: Ticket) -> int:
        """Return when to come back, from the figures last read."""
        state = self.state
        ahead, drain = 0, None
        if state is not None:
            rank = ticket.request.flow.priority_class.rank
            ahead = ticket.tokens + sum(b.tokens for r, b in state.backlog.items() if r <= rank)
            drain = state.drain_tokens_per_s
        return retry_after_s(ahead, drain, jitter=random.random())  # noqa: S311 - as above
