"""The waiters and leases of this replica, and where news of them is delivered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from extproc.admission.ports import Holding, Ticket

Bounce = Callable[[str, str], None]
"""Called with request id and attempt of a grant that nobody here expects."""


class Waiter:
    """One attempt's holding and the news it waits for.

    Attributes:
        holding: what the attempt holds.
        can_move: True while Envoy would bring the request to another replica if this one let go of it.
        has_let_go: True once the place was left to a later attempt, so that it must not be given back.
        granted_s: loop time at which the grant was heard of; None before.
    """

    def __init__(self, ticket: Ticket, *, can_move: bool) -> None:
        self.holding = Holding(ticket)
        self.can_move = can_move
        self.has_let_go = False
        self.granted_s: float | None = None
        self._news: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def grant(self) -> int:
        """Wait for the grant and return the milliseconds waited.

        Raises:
            Exception: whatever `fail` was given.
        """
        if self._news.done():
            return self._news.result()
        return await asyncio.shield(self._news)  # a timeout around the wait must not cancel the news itself

    @property
    def is_waiting(self) -> bool:
        """True until the first news."""
        return not self._news.done()

    def deliver(self, waited_ms: int) -> None:
        """Tell of the grant; later news is ignored."""
        self.holding.is_granted = True
        self.granted_s = asyncio.get_running_loop().time()
        if not self._news.done():
            self._news.set_result(waited_ms)

    def fail(self, error: Exception) -> None:
        """Tell that there will be no grant; later news is ignored."""
        if not self._news.done():
            self._news.set_exception(error)
            self._news.exception()  # nobody may be listening any more, which is no fault

    def let_go(self, error: Exception) -> None:
        """End the wait, leaving the place for whoever brings the request next."""
        self.has_let_go = True
        self.fail(error)


class Mailbox:
    """Delivers grants to the attempts that expect them; others bounce."""

    def __init__(self, bounce: Bounce) -> None:
        self._bounce = bounce
        self._waiters: dict[str, Waiter] = {}
        self._let_go: deque[str] = deque(maxlen=10_000)  # whose grants wait in the store for a later attempt

    @contextmanager
    def expect(self, ticket: Ticket, *, can_move: bool = False) -> Iterator[Waiter]:
        """Expect news of a ticket. Enter before enqueuing, so that no grant is missed."""
        waiter = self._waiters[ticket.attempt] = Waiter(ticket, can_move=can_move)
        try:
            yield waiter
        finally:
            del self._waiters[ticket.attempt]
            if waiter.has_let_go:
                self._let_go.append(ticket.attempt)

    def deliver(self, request_id: str, attempt: str, waited_ms: int) -> None:
        """Deliver a grant; a `GrantListener`."""
        waiter = self._waiters.get(attempt)
        if waiter is not None:
            waiter.deliver(waited_ms)
        elif attempt not in self._let_go:
            self._bounce(request_id, attempt)

    def get(self, attempt: str) -> Waiter | None:
        """Return the waiter of an attempt, or None when it has gone."""
        return self._waiters.get(attempt)

    def holdings(self) -> list[Holding]:
        """Return what the queue has given this replica, for a renewal; not what it is still asked for."""
        return [w.holding for w in self._waiters.values() if w.holding.enqueued_ms and not w.has_let_go]

    def grow(self) -> None:
        """Let the reservations of answers that run longer than expected ask for more at the next renewal."""
        now_s = asyncio.get_running_loop().time()
        for waiter in self._waiters.values():
            expectation = waiter.holding.ticket.expectation
            if expectation is not None and waiter.granted_s is not None:
                waiter.holding.wanted_tokens = expectation.tokens_after(now_s - waiter.granted_s)

    @property
    def is_empty(self) -> bool:
        """True when no exchange holds or awaits anything."""
        return not self._waiters

    def waiting(self) -> list[Waiter]:
        """Return the waiters that have no news."""
        return [waiter for waiter in self._waiters.values() if waiter.is_waiting]
