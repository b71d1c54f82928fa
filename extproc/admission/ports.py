"""What admission needs from the outside, as Protocols; adaptors implement them, `extproc.app` wires them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from extproc.domain.forecast import Expectation
from extproc.domain.outcome import Refusal
from extproc.domain.request import InferenceRequest


@dataclass(frozen=True, slots=True)
class Ticket:
    """One attempt to get one request admitted, and who makes it.

    Envoy may bring the same request twice: the later attempt takes over whatever the earlier one held,
    and from then on the earlier one owns nothing.

    Attributes:
        request: the request.
        tokens: reservation to book, at least 1.
        attempt: unique in the cluster.
        expectation: how the answer is expected to go on; None where its reservation is not to grow.
    """

    request: InferenceRequest
    tokens: int
    attempt: str
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one pool may hold, shared by the whole cluster.

    Attributes:
        tokens: tokens that may be held, or None where only requests are counted.
        requests: requests that may be held, or None where only tokens are counted.
    """

    tokens: int | None
    requests: int | None


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may go on; its reservation is booked. `waited_ms` is on the store's clock."""

    waited_ms: int


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits. `waited_ms` is not 0 when an earlier attempt had queued already."""

    waited_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The queue does not take the request.

    Attributes:
        refusal: why.
        ahead_tokens: tokens that would have to be given back first.
        drain_tokens_per_s: rate at which the pool gives tokens back; None when unknown.
    """

    refusal: Refusal
    ahead_tokens: int = 0
    drain_tokens_per_s: float | None = None


Placement = Granted | Queued | Refused


class Standing(IntEnum):
    """Where the queue sees a holding at a renewal."""

    UNKNOWN = 0
    WAITING = 1
    HELD = 2
    TAKEN_OVER = 3  # by a later attempt of the same request


@dataclass(slots=True)
class Holding:
    """What one replica holds for one request: a place in the queue, or a lease.

    Attributes:
        ticket: whose it is.
        is_granted: True for a lease, False for a place in the queue.
        rank: place in the order once the queue has said it; 0 before.
        enqueued_ms: store time of the first attempt, milliseconds; 0 before the queue has said it.
        tokens: booked, or to be booked; the ticket's at first.
        wanted_tokens: what a renewal shall book if there is room, where it is more.
    """

    ticket: Ticket
    is_granted: bool = False
    rank: int = 0
    enqueued_ms: int = 0
    tokens: int = 0
    wanted_tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.tokens or self.ticket.tokens


@dataclass(frozen=True, slots=True)
class ClassBacklog:
    """What waits in one priority class, and how long the head has waited."""

    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PoolState:
    """The cluster's figures of one pool, as the store has them.

    Attributes:
        held_tokens: tokens booked by leases.
        held_requests: leases.
        capacity: None where the store has not been told.
        backlog: what waits, by class rank.
        drain_tokens_per_s: tokens given back per second, smoothed; None when unknown.
        held_token_s: token-seconds held since the store began, a counter; None where it was not asked.
        replicas: replicas alive.
    """

    held_tokens: int
    held_requests: int
    capacity: Capacity | None
    backlog: dict[int, ClassBacklog] = field(default_factory=dict)
    drain_tokens_per_s: float | None = None
    held_token_s: float | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep took back from owners that stopped renewing."""

    leases: int = 0
    waiters: int = 0


GrantListener = Callable[[str, str, int], None]
"""Called with request id, attempt and waited milliseconds for each grant made to this replica."""


class WaitQueue(Protocol):
    """One pool's order and room. All methods but `enqueue` are idempotent.

    Raises:
        QueueUnavailable: from every method, when the store does not answer in its time.
    """

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        """Grant, queue or refuse; fills in the holding's `rank` and `enqueued_ms`."""
        ...

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Give back whatever each (request id, attempt) holds; unknown ones leave a mark that stops them."""
        ...

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Keep holdings alive, and this replica with them; says where each stands, in order.

        A lease whose `wanted_tokens` are more than it has grows, as far as there is room: a reservation never
        exceeds the capacity because of it, and a full pool admits nobody anyway.

        What the store has forgotten is put back first, waiters with their old rank, leases even beyond
        the capacity. A waiter found granted is announced to the listener.
        """
        ...

    async def sweep(self) -> Swept:
        """Take back what nobody renews, then grant what fits."""
        ...

    async def set_capacity(self, capacity: Capacity) -> None:
        """Set the capacity and grant what fits."""
        ...

    async def state(self) -> PoolState:
        """Read the pool's figures."""
        ...


class Observer(Protocol):
    """Hears what happens in one pool; all calls return at once and never raise."""

    def admitted(self, request: InferenceRequest, wait_s: float) -> None:
        """A request may go on after `wait_s` in the queue."""
        ...

    def shed(self, request: InferenceRequest, refusal: Refusal) -> None:
        """A request was refused."""
        ...

    def withdrawn(self, request: InferenceRequest) -> None:
        """A request's client or Envoy went before it was admitted."""
        ...

    def handed_over(self, request: InferenceRequest) -> None:
        """A draining replica gave a waiter to whoever Envoy tries next."""
        ...

    def swept(self, swept: Swept) -> None:
        """A sweep took something back."""
        ...

    def saw(self, state: PoolState) -> None:
        """The pool's figures were read."""
        ...

    def store_changed(self, *, is_up: bool) -> None:
        """The shared store was lost, or is back."""
        ...
