"""The queue's twin in memory: the same rules for the replicas of one process.

It serves while Redis is away (`extproc.admission.failover`), and it keeps the scripts honest: one contract
suite runs against both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    Ticket,
)
from extproc.domain.outcome import Refusal
from extproc.domain.rank import class_rank_of
from extproc.waitqueue.memory_store import Entry, MemoryStore
from extproc.waitqueue.restoring import forgotten

_DEPARTED_MS = 60_000


class MemoryQueue:
    """A `WaitQueue` of one replica on a `MemoryStore`; never raises `QueueUnavailable`."""

    def __init__(self, store: MemoryStore, replica: str, *, on_grant: GrantListener) -> None:
        self._store = store
        self._replica = replica
        store.listeners[replica] = on_grant

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        """Grant, queue or refuse a request; see `WaitQueue.enqueue`."""
        store, ticket, now_ms = self._store, holding.ticket, self._store.pass_time()
        if ticket.attempt in store.departed:
            return Refused(Refusal.NOT_QUEUED)
        if known := store.entries.get(ticket.request.id):
            return self._adopt(known, holding, now_ms)
        if store.capacity and store.capacity.tokens is not None and ticket.tokens > store.capacity.tokens:
            return Refused(Refusal.NEVER_FITS)
        rank = store.next_rank(ticket.request.flow.priority_class.rank, now_ms)
        entry = self._new_entry(ticket, now_ms, rank, now_ms)
        if (not store.waiting or entry.rank < store.waiting[0][0]) and store.fits(entry.tokens):
            store.hold(entry, now_ms)
            holding.rank, holding.enqueued_ms = entry.rank, entry.enqueued_ms
            return Granted(0)
        if ticket.request.max_wait_s <= 0:
            return self._refuse(Refusal.NOT_QUEUED, entry)
        if len(store.waiting) >= max_requests:
            return self._refuse(Refusal.QUEUE_FULL, entry)
        store.queue(entry)
        holding.rank, holding.enqueued_ms = entry.rank, entry.enqueued_ms
        return Queued(0)

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Give back whatever each (request id, attempt) holds; see `WaitQueue.leave`."""
        now_ms = self._store.pass_time()
        for request_id, attempt in tickets:
            entry = self._store.entries.get(request_id)
            if entry and entry.attempt == attempt:
                self._store.remove(entry)
            else:
                self._store.departed[attempt] = now_ms + _DEPARTED_MS
        self._store.grant_free(now_ms)

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Keep holdings and this replica alive; see `WaitQueue.renew`."""
        store, now_ms = self._store, self._store.pass_time()
        store.replicas[self._replica] = now_ms + store.lifetimes.heartbeat_ms
        standings = [self._renew_one(holding, now_ms) for holding in holdings]
        for holding in forgotten(holdings, standings):
            self._restore(holding, now_ms)
        return standings

    async def sweep(self) -> Swept:
        """Take back what nobody renews, then grant what fits; see `WaitQueue.sweep`."""
        store, now_ms = self._store, self._store.pass_time()
        if store.swept_ms and now_ms - store.swept_ms > store.lifetimes.max_gap_ms:
            store.grace_until_ms = now_ms + store.lifetimes.heartbeat_ms
        store.swept_ms = now_ms
        expired = [e for e in store.entries.values() if e.expires_ms <= now_ms >= store.grace_until_ms]
        for entry in sorted(expired, key=lambda e: not e.is_granted):
            store.remove(entry)
        store.departed = {a: until for a, until in store.departed.items() if until > now_ms}
        store.replicas = {r: until for r, until in store.replicas.items() if until > now_ms}
        store.grant_free(now_ms)
        leases = sum(e.is_granted for e in expired)
        return Swept(leases=leases, waiters=len(expired) - leases)

    async def set_capacity(self, capacity: Capacity) -> None:
        """Set what the pool may hold, then grant what fits; see `WaitQueue.set_capacity`."""
        self._store.capacity = capacity
        self._store.grant_free(self._store.pass_time())

    async def state(self) -> PoolState:
        """Read the pool's figures; see `WaitQueue.state`."""
        store, now_ms = self._store, self._store.pass_time()
        depth: Counter[int] = Counter()
        tokens: Counter[int] = Counter()
        for _, request_id in store.waiting:
            entry = store.entries[request_id]
            depth[entry.class_rank] += 1
            tokens[entry.class_rank] += entry.tokens
        return PoolState(
            held_tokens=store.held_tokens,
            held_requests=store.held_requests,
            capacity=store.capacity,
            backlog={r: ClassBacklog(depth[r], tokens[r]) for r in depth},
            drain_tokens_per_s=store.drain_tokens_per_s(),
            held_token_s=store.token_ms / 1000,
            replicas=sum(until > now_ms for until in store.replicas.values()),
        )

    def _new_entry(self, ticket: Ticket, now_ms: int, rank: int, enqueued_ms: int) -> Entry:
        return Entry(
            request_id=ticket.request.id,
            attempt=ticket.attempt,
            replica=self._replica,
            tokens=ticket.tokens,
            class_rank=class_rank_of(rank),
            rank=rank,
            enqueued_ms=enqueued_ms,
            expires_ms=now_ms + self._store.lifetimes.heartbeat_ms,
        )

    def _adopt(self, entry: Entry, holding: Holding, now_ms: int) -> Placement:
        lifetimes = self._store.lifetimes
        entry.attempt, entry.replica = holding.ticket.attempt, self._replica
        entry.expires_ms = now_ms + (lifetimes.lease_ms if entry.is_granted else lifetimes.heartbeat_ms)
        holding.rank, holding.enqueued_ms = entry.rank, entry.enqueued_ms
        if entry.is_granted:
            return Granted(entry.waited_ms)
        return Queued(max(0, now_ms - entry.enqueued_ms))

    def _renew_one(self, holding: Holding, now_ms: int) -> Standing:
        store, lifetimes = self._store, self._store.lifetimes
        entry = store.entries.get(holding.ticket.request.id)
        if entry is None:
            return Standing.UNKNOWN
        if entry.attempt != holding.ticket.attempt:
            return Standing.TAKEN_OVER
        if holding.is_granted and not entry.is_granted:
            store.remove(entry)
            store.hold(entry, now_ms)
        if not entry.is_granted:
            entry.expires_ms = now_ms + lifetimes.heartbeat_ms
            return Standing.WAITING
        entry.expires_ms = now_ms + lifetimes.lease_ms
        store.grow(entry, holding.wanted_tokens)
        holding.tokens = entry.tokens
        if not holding.is_granted:
            store.listeners[self._replica](holding.ticket.request.id, holding.ticket.attempt, entry.waited_ms)
        return Standing.HELD

    def _restore(self, holding: Holding, now_ms: int) -> None:
        store, ticket = self._store, holding.ticket
        if ticket.attempt in store.departed:
            return
        rank, enqueued_ms = holding.rank, holding.enqueued_ms
        if not enqueued_ms:  # it never heard from a store where it stands: at the end, from now on
            rank, enqueued_ms = store.next_rank(ticket.request.flow.priority_class.rank, now_ms), now_ms
        entry = self._new_entry(ticket, now_ms, rank, enqueued_ms)
        entry.tokens = holding.tokens
        if holding.is_granted:
            store.hold(entry, now_ms)
        else:
            store.queue(entry)

    def _refuse(self, refusal: Refusal, entry: Entry) -> Refused:
        return Refused(refusal, self._store.ahead_tokens(entry), self._store.drain_tokens_per_s())
