"""What Redis would hold for one pool, in memory, and the moves that the scripts' includes make there."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from extproc.admission.ports import Capacity, GrantListener
from extproc.domain.rank import rank
from extproc.waitqueue.lifetimes import Lifetimes

_DRAIN_TAU_MS = 10_000


@dataclass(slots=True)
class Entry:
    """What the store knows of one request; see `include/record.lua`."""

    request_id: str
    attempt: str
    replica: str
    tokens: int
    class_rank: int
    rank: int
    enqueued_ms: int
    expires_ms: int
    waited_ms: int = 0
    is_granted: bool = False


@dataclass
class MemoryStore:
    """What Redis would hold for one pool, shared by the `MemoryQueue` of each replica.

    Args:
        clock_ms: milliseconds, never backwards.
        lifetimes: as for `RedisQueue`.
        capacity: what the pool may hold, or None before it is known.
        sharers: stores that share the capacity without seeing each other; each grants its part of it, and at
            least one request.
    """

    clock_ms: Callable[[], int]
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    capacity: Capacity | None = None
    sharers: int = 1
    listeners: dict[str, GrantListener] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    departed: dict[str, int] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    held_tokens: int = 0
    held_requests: int = 0
    arrival: int = 0
    swept_ms: int = 0
    grace_until_ms: int = 0
    token_ms: float = 0.0
    counted_ms: int = 0
    drained: float = 0.0
    busy_ms: float = 0.0

    def next_rank(self, class_rank: int, now_ms: int) -> int:
        """Return the place of a request that arrives now."""
        self.arrival = max(now_ms, self.arrival + 1)
        return rank(class_rank, self.arrival)

    def limits(self) -> tuple[float, float]:
        """Return tokens and requests that this store may grant."""
        capacity = self.capacity or Capacity(None, None)
        tokens = math.inf if capacity.tokens is None else capacity.tokens / self.sharers
        requests = math.inf if capacity.requests is None else capacity.requests / self.sharers
        return tokens, requests

    def fits(self, tokens: int) -> bool:
        """Tell whether a reservation has room: used + mine <= capacity, or it goes alone."""
        if self.capacity is None:
            return False
        most_tokens, most_requests = self.limits()
        return self.held_requests == 0 or (
            self.held_requests + 1 <= most_requests and self.held_tokens + tokens <= most_tokens
        )

    def ahead_tokens(self, entry: Entry) -> int:
        """Return the tokens that must be given back before a refused request could go on.

        Where requests are scarcer, those that must leave are counted at the mean of the tokens held.
        """
        before = [self.entries[request_id] for r, request_id in self.waiting if r < entry.rank]
        tokens = entry.tokens + sum(other.tokens for other in before) + self.held_tokens
        requests = 1 + len(before) + self.held_requests
        most_tokens, most_requests = self.limits()
        mean_tokens = self.held_tokens / max(1, self.held_requests)
        ahead = max(0.0, tokens - most_tokens, (requests - most_requests) * mean_tokens)
        return math.ceil(ahead)

    def queue(self, entry: Entry) -> None:
        """Put an entry in its place in the order."""
        self.entries[entry.request_id] = entry
        bisect.insort(self.waiting, (entry.rank, entry.request_id))

    def hold(self, entry: Entry, now_ms: int) -> None:
        """Book an entry's reservation."""
        entry.is_granted = True
        entry.expires_ms = now_ms + self.lifetimes.lease_ms
        self.entries[entry.request_id] = entry
        self.held_tokens += entry.tokens
        self.held_requests += 1

    def grow(self, entry: Entry, wanted: int) -> None:
        """Book more for an entry, as far as there is room."""
        most_tokens, _ = self.limits()
        more = (
            0
            if self.capacity is None
            else math.floor(min(wanted - entry.tokens, most_tokens - self.held_tokens))
        )
        if more > 0:
            entry.tokens += more
            self.held_tokens += more

    def remove(self, entry: Entry) -> None:
        """Give back whatever an entry holds, of whichever kind."""
        del self.entries[entry.request_id]
        if not entry.is_granted:
            del self.waiting[bisect.bisect_left(self.waiting, (entry.rank, entry.request_id))]
            return
        self.held_tokens -= entry.tokens
        self.held_requests -= 1
        if self.waiting:
            self.drained += entry.tokens

    def grant_free(self, now_ms: int) -> None:
        """Grant waiters while there is room, first in the order first; the head is never overtaken."""
        while self.waiting and self.fits(self.entries[self.waiting[0][1]].tokens):
            entry = self.entries[self.waiting.pop(0)[1]]
            entry.waited_ms = max(0, now_ms - entry.enqueued_ms)
            self.hold(entry, now_ms)
            listener = self.listeners.get(entry.replica)
            if listener:
                listener(entry.request_id, entry.attempt, entry.waited_ms)

    def drain_tokens_per_s(self) -> float | None:
        """Return the rate at which tokens come back while somebody waits, or None when unknown."""
        if self.busy_ms < 500 or self.drained <= 0:
            return None
        return self.drained * 1000 / self.busy_ms

    def pass_time(self) -> int:
        """Bring the figures that follow the clock up to date, and return its milliseconds."""
        now_ms = self.clock_ms()
        elapsed_ms = max(0, now_ms - self.counted_ms) if self.counted_ms else 0
        self.token_ms += self.held_tokens * elapsed_ms
        if self.waiting:
            decay = math.exp(-elapsed_ms / _DRAIN_TAU_MS)
            self.drained *= decay
            self.busy_ms = self.busy_ms * decay + _DRAIN_TAU_MS * (1 - decay)
        self.counted_ms = max(now_ms, self.counted_ms)
        return now_ms
