"""The queue in Redis: a typed caller of the scripts, one for each pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from extproc.admission.ports import (
    Capacity,
    ClassBacklog,
    Granted,
    GrantListener,
    Holding,
    Placement,
    PoolState,
    Queued,
    Refused,
    Standing,
    Swept,
)
from extproc.domain.errors import QueueUnavailable
from extproc.domain.outcome import Refusal
from extproc.domain.rank import class_rank_of
from extproc.waitqueue import scripts
from extproc.waitqueue.keys import pool_keys
from extproc.waitqueue.lane import SPACING_S, Lane
from extproc.waitqueue.lifetimes import Lifetimes
from extproc.waitqueue.restoring import forgotten
from extproc.waitqueue.scripts import Script

T = TypeVar("T")
A = TypeVar("A", bound=tuple[str | int, ...])

_BATCH = 500  # holdings a call: keeps every script near a millisecond
_MAX_GRANTS = 64  # as in include/grant.lua: so many means there may be more
_MAX_REMOVED = 100  # as in sweep.lua, likewise


class _Status(IntEnum):
    """What enqueue.lua answers."""

    GRANTED = 1
    QUEUED = 2
    NEVER_FITS = 3
    QUEUE_FULL = 4
    NOT_QUEUED = 5
    LEFT = 6


_REFUSALS = {
    _Status.NEVER_FITS: Refusal.NEVER_FITS,
    _Status.QUEUE_FULL: Refusal.QUEUE_FULL,
    _Status.NOT_QUEUED: Refusal.NOT_QUEUED,
    # It left before it was heard of, so nobody waits for this answer; no way to say "no" is more harmless.
    _Status.LEFT: Refusal.NOT_QUEUED,
}


class RedisQueue:
    """A `WaitQueue` on a Redis that all replicas share.

    Args:
        client: connected lazily; one of its connections is this queue's for good.
        pool: whose queue.
        replica: this process' name in the cluster, unique for each start.
        on_grant: told of waiters that a renewal finds granted; `GrantFeed` tells of the others.
        on_loss: told that the store came back without what it held; a renewal should follow at once.
        class_ranks: ranks of the configured classes, which `state` reports even where nobody waits.
        lifetimes: see `Lifetimes`.
        timeout_s: budget of one call.
        spacing_s: see `Lane`.
        clock_ms: hands the scripts a clock instead of Redis TIME; for tests.
    """

    def __init__(
        self,
        client: Redis,
        pool: str,
        replica: str,
        *,
        on_grant: GrantListener,
        on_loss: Callable[[], None] = lambda: None,
        class_ranks: Sequence[int] = (0,),
        lifetimes: Lifetimes | None = None,
        timeout_s: float = 0.25,
        spacing_s: float = SPACING_S,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._lane = Lane(client, timeout_s=timeout_s, spacing_s=spacing_s)
        self._replica = replica
        keys = pool_keys(pool)
        self._openings = {script.name: ("EVALSHA", script.sha, len(keys), *keys) for script in scripts.ALL}
        self._on_grant = on_grant
        self._on_loss = on_loss
        self._class_ranks = tuple(class_ranks)
        self._lifetimes = lifetimes or Lifetimes()
        self._clock_ms = clock_ms
        self._epoch = 0
        self._capacity: Capacity | None = None
        self._is_capacity_told = False
        self._leavers: list[set[str]] = []  # for each renewal that runs, the attempts that left meanwhile
        self.replicas = 1
        """Replicas alive, as the last renewal saw them."""

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        """Grant, queue or refuse a request; see `WaitQueue.enqueue`."""
        ticket, request = holding.ticket, holding.ticket.request
        arguments = scripts.Enqueue(
            id=request.id,
            attempt=ticket.attempt,
            replica=self._replica,
            tokens=ticket.tokens,
            class_rank=request.flow.priority_class.rank,
            tenant=request.flow.tenant,
            max_requests=max_requests,
            may_wait=int(request.max_wait_s > 0),
            lease_ms=self._lifetimes.lease_ms,
            heartbeat_ms=self._lifetimes.heartbeat_ms,
        )
        status, *figures = await self._call(scripts.ENQUEUE, arguments)
        if status in _REFUSALS:
            ahead, drain = figures
            return Refused(_REFUSALS[status], ahead, float(drain) if drain else None)
        waited_ms, holding.rank, holding.enqueued_ms = figures
        return Granted(waited_ms) if status == _Status.GRANTED else Queued(waited_ms)

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Give back whatever each (request id, attempt) holds; see `WaitQueue.leave`."""
        for leavers in self._leavers:
            leavers.update(attempt for _, attempt in tickets)
        for batch in _batches(tickets):
            words = [word for pair in batch for word in pair]
            arguments = scripts.Leave(self._lifetimes.lease_ms)
            [granted] = await self._call(scripts.LEAVE, arguments, words, is_patient=True)
            await self._go_on(granted)

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Keep holdings and this replica alive; see `WaitQueue.renew`."""
        standings: list[Standing] = []
        with self._watching_leavers() as left:
            for batch in _batches(holdings) or [()]:  # a replica that holds nothing is alive, too
                standings += await self._renew_batch(batch)
            lost = [h for h in forgotten(holdings, standings) if h.ticket.attempt not in left]
            for batch in _batches(lost):
                await self._restore(batch)
        if self._capacity is not None and not self._is_capacity_told:
            await self.set_capacity(self._capacity)
        return standings

    async def sweep(self) -> Swept:
        """Take back what nobody renews, then grant what fits; see `WaitQueue.sweep`."""
        lifetimes, swept = self._lifetimes, Swept()
        arguments = scripts.Sweep(lifetimes.lease_ms, lifetimes.heartbeat_ms, lifetimes.max_gap_ms)
        while True:
            leases, waiters, granted = await self._call(scripts.SWEEP, arguments)
            swept = Swept(swept.leases + leases, swept.waiters + waiters)
            if granted < _MAX_GRANTS and max(leases, waiters) < _MAX_REMOVED:
                return swept

    async def set_capacity(self, capacity: Capacity) -> None:
        """Set what the pool may hold, then grant what fits; see `WaitQueue.set_capacity`."""
        self._capacity, self._is_capacity_told = capacity, False
        arguments = scripts.SetCapacity(
            lease_ms=self._lifetimes.lease_ms,
            tokens="none" if capacity.tokens is None else capacity.tokens,
            requests="none" if capacity.requests is None else capacity.requests,
        )
        [granted] = await self._call(scripts.SET_CAPACITY, arguments)
        self._is_capacity_told = self._capacity is capacity
        await self._go_on(granted)

    async def state(self) -> PoolState:
        """Read the pool's figures; see `WaitQueue.state`."""
        tokens, requests, used, held, replicas, drain, token_s, *backlog = await self._call(
            scripts.STATE, scripts.State()
        )
        waiting = zip(backlog[::3], backlog[1::3], backlog[2::3], strict=True)
        return PoolState(
            held_tokens=used,
            held_requests=held,
            capacity=Capacity(_limit(tokens), _limit(requests)) if tokens else None,
            backlog={rank: ClassBacklog(0, 0) for rank in self._class_ranks}
            | {rank: ClassBacklog(*figures) for rank, *figures in waiting},
            drain_tokens_per_s=float(drain) if drain else None,
            held_token_s=float(token_s),
            replicas=replicas,
        )

    async def _renew_batch(self, holdings: Sequence[Holding]) -> list[Standing]:
        lifetimes = self._lifetimes
        self.replicas, knows_capacity, *figures = await self._call(
            scripts.RENEW,
            scripts.Renew(self._replica, lifetimes.lease_ms, lifetimes.heartbeat_ms),
            [
                word
                for h in holdings
                for word in (h.ticket.request.id, h.ticket.attempt, int(h.is_granted), h.wanted_tokens)
            ],
        )
        self._is_capacity_told = self._is_capacity_told and bool(knows_capacity)
        standings = [Standing(figure) for figure in figures[::3]]
        for holding, standing, waited_ms, tokens in zip(
            holdings, standings, figures[1::3], figures[2::3], strict=True
        ):
            holding.tokens = tokens or holding.tokens
            if standing is Standing.HELD and not holding.is_granted:
                self._on_grant(holding.ticket.request.id, holding.ticket.attempt, waited_ms)
        return standings

    async def _restore(self, holdings: Sequence[Holding]) -> None:
        words: list[str | int] = []
        for holding in holdings:
            ticket, flow = holding.ticket, holding.ticket.request.flow
            # The place, once given, tells the class: a later attempt may have come in another one.
            rank = class_rank_of(holding.rank) if holding.enqueued_ms else flow.priority_class.rank
            words += (ticket.request.id, ticket.attempt, holding.tokens, rank, flow.tenant)
            words += (holding.rank, holding.enqueued_ms, int(holding.is_granted))
        lifetimes = self._lifetimes
        arguments = scripts.Restore(self._replica, lifetimes.lease_ms, lifetimes.heartbeat_ms)
        await self._call(scripts.RESTORE, arguments, words)

    async def _go_on(self, granted: int) -> None:
        """Grant more where a call granted as many as one call may."""
        if granted >= _MAX_GRANTS:
            await self.sweep()

    @contextmanager
    def _watching_leavers(self) -> Iterator[set[str]]:
        """Collect who leaves during a renewal: the store has forgotten them rightly."""
        left: set[str] = set()
        self._leavers.append(left)
        try:
            yield left
        finally:
            self._leavers.remove(left)

    async def _call(
        self, script: Script[A], arguments: A, more: Sequence[str | int] = (), *, is_patient: bool = False
    ) -> Any:
        """Run a script and return what follows the epoch in its reply.

        Raises:
            QueueUnavailable: Redis answered with a fault, not in time, or not at all.
        """
        now_ms = "" if self._clock_ms is None else self._clock_ms()
        words = (*self._openings[script.name], now_ms, self._epoch, *arguments, *more)
        try:
            try:
                reply = await self._lane.call(words, is_patient=is_patient)
            except NoScriptError:
                reply = await self._lane.call(("EVAL", script.source, *words[2:]))
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise QueueUnavailable(f"{script.name}: {type(error).__name__}: {error}") from error
        epoch, *figures = reply
        known, self._epoch = self._epoch, epoch or self._epoch
        if known not in (0, self._epoch):
            self._on_loss()
        return figures


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]


def _limit(text: str) -> int | None:
    return None if text == "none" else int(text)
