"""One run of `bench/estimates.py`: tenants, simulated engines, and Forebay's queue and learning between.

Time is a number and nothing sleeps. Queue, reservations, forecasts and lessons are the product's code; in the
place of Envoy, gateways and Redis there are function calls, which take no time.
"""
# ruff: noqa: INP001 - beside a script

from __future__ import annotations

import heapq
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from estimates_tenants import CLASSES, ENGINE, EPOCH_MS, MODEL, Arrival, School

from extproc.admission.ports import Capacity, Granted, Holding, Ticket
from extproc.domain.forecast import Forecast, Reserve
from extproc.domain.request import FlowKey, InferenceRequest
from extproc.simulator.batching import Batch, Batching
from extproc.simulator.sequence import Sequence, SequenceState
from extproc.waitqueue import MemoryQueue, MemoryStore

LEARNT_AFTER = 300  # requests; errors of estimates are taken from then on

_CAPACITY_SHARE = 0.95
_RENEW_S = 3
_PATIENCE_S = 1e6
_NO_BOUND = 10**9


@dataclass(frozen=True, slots=True)
class Policy:
    """What is booked for a request.

    Attributes:
        name: in the report.
        reserve: the product's rule; None for an oracle that knows a request's size.
        capacity_share: of the engines' KV tokens that may be booked.
    """

    name: str
    reserve: Reserve | None
    capacity_share: float = _CAPACITY_SHARE


@dataclass(frozen=True, slots=True)
class Sample:
    """One second's figures, in tokens.

    Attributes:
        booked: by all leases.
        final: what those leases' requests hold at their ends.
        stored: in the engines' KV caches at that moment.
    """

    at_s: float
    booked: int
    final: int
    stored: int


@dataclass(slots=True)
class Course:
    """How a run went; counts and waits are of the time after the warm-up.

    Attributes:
        policy: that booked.
        capacity_tokens: that might be booked.
        kv_tokens: that the engines can store.
        seconds: after the warm-up.
        requests: completed.
        tokens: prompts and outputs of those.
        preemptions: by the engines.
        waits_s: in the queue, by class; of those that still wait in the end, so far.
        first_tokens_s: from arrival to the first token, by class.
        samples: every second once enough is learnt.
    """

    policy: str
    capacity_tokens: int
    kv_tokens: int
    seconds: float
    requests: int = 0
    tokens: int = 0
    preemptions: int = 0
    waits_s: dict[str, list[float]] = field(default_factory=lambda: {c.name: [] for c in CLASSES})
    first_tokens_s: dict[str, list[float]] = field(default_factory=lambda: {c.name: [] for c in CLASSES})
    samples: list[Sample] = field(default_factory=list)

    def errors(self, actual: Callable[[Sample], int]) -> list[float]:
        """Return what was booked above what was actual, as shares of the capacity."""
        return [(sample.booked - actual(sample)) / self.capacity_tokens for sample in self.samples]


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way."""

    arrival: Arrival
    forecast: Forecast
    holding: Holding
    sequence: Sequence
    engine: Engine | None = None
    granted_s: float = math.nan
    first_s: float | None = None


@dataclass(slots=True, eq=False)
class Engine:
    """One engine and what runs on it."""

    batching: Batching
    exchanges: dict[Sequence, Exchange] = field(default_factory=dict)
    is_stepping: bool = False

    @property
    def load(self) -> tuple[int, int]:
        """Requests, then tokens: what balancing by least requests compares."""
        return len(self.exchanges), self.batching.kv_tokens


class Replay:
    """One run of a policy over arrivals.

    Args:
        policy: what to book.
        coming: the arrivals, in order.
        engines: how many.
        seconds: of the run.
        warmup_s: of them, which do not count.
    """

    def __init__(
        self, policy: Policy, coming: list[Arrival], *, engines: int, seconds: float, warmup_s: float
    ) -> None:
        self._policy, self._coming, self._seconds, self._warmup_s = policy, coming, seconds, warmup_s
        self._now_s = 0.0
        self._events: list[tuple[float, int, Callable[[Any], Awaitable[None]], Any]] = []
        self._order = 0
        self._engines = [Engine(Batching(ENGINE.limits, ENGINE.step_time)) for _ in range(engines)]
        self._school = School(self._clock_ms, policy.reserve or Reserve.LIMIT)
        kv_tokens = engines * ENGINE.kv_tokens
        self._capacity = Capacity(int(kv_tokens * policy.capacity_share), 8 * engines * ENGINE.max_num_seqs)
        self._store = MemoryStore(self._clock_ms, capacity=self._capacity)
        self._queue = MemoryQueue(self._store, "replica", on_grant=self._hear)
        self._exchanges: dict[str, Exchange] = {}
        self._completed = 0
        self.course = Course(policy.name, self._capacity.tokens or 0, kv_tokens, seconds=seconds - warmup_s)

    async def run(self) -> Course:
        """Replay, and return how it went."""
        self._at(1.0, self._tick, 1)
        upcoming: Iterator[Arrival] = iter(self._coming)
        self._next_arrival(upcoming)
        while self._events and self._events[0][0] <= self._seconds:
            self._now_s, _, handle, argument = heapq.heappop(self._events)
            await handle(argument)
        self._now_s = self._seconds
        for exchange in self._exchanges.values():
            if exchange.engine is None:
                self._count_wait(exchange, self._seconds - exchange.arrival.at_s)
        return self.course

    def _clock_ms(self) -> int:
        return EPOCH_MS + round(self._now_s * 1000)

    def _at(self, at_s: float, handle: Callable[[Any], Awaitable[None]], argument: object) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, handle, argument))

    def _next_arrival(self, upcoming: Iterator[Arrival]) -> None:
        arrival = next(upcoming, None)
        if arrival is not None:
            self._at(arrival.at_s, self._arrive, (arrival, upcoming))

    async def _arrive(self, argument: tuple[Arrival, Iterator[Arrival]]) -> None:
        arrival, upcoming = argument
        self._next_arrival(upcoming)
        sizes = arrival.sizes
        forecast = self._school.foresee(arrival.tenant, arrival.priority_class, sizes.counted_tokens)
        is_oracle = self._policy.reserve is None
        flow = FlowKey(arrival.tenant.name, arrival.priority_class)
        ticket = Ticket(
            InferenceRequest(arrival.name, MODEL, flow, _PATIENCE_S),
            sizes.total_tokens if is_oracle else forecast.estimate.reservation_tokens,
            f"replica/{arrival.name}",
            None if is_oracle else forecast.expectation,
        )
        exchange = Exchange(
            arrival, forecast, Holding(ticket), Sequence(sizes.prompt_tokens, sizes.output_tokens)
        )
        self._exchanges[arrival.name] = exchange
        if isinstance(await self._queue.enqueue(exchange.holding, max_requests=_NO_BOUND), Granted):
            self._hear(arrival.name, ticket.attempt, 0)

    def _hear(self, request_id: str, _attempt: str, waited_ms: int) -> None:
        """Send a request that may go on to the engine with the fewest."""
        exchange = self._exchanges[request_id]
        exchange.holding.is_granted, exchange.granted_s = True, self._now_s
        self._count_wait(exchange, waited_ms / 1000)
        exchange.engine = engine = min(self._engines, key=lambda e: e.load)
        engine.exchanges[exchange.sequence] = exchange
        engine.batching.add(exchange.sequence)
        if not engine.is_stepping:
            self._step(engine)

    def _count_wait(self, exchange: Exchange, wait_s: float) -> None:
        if exchange.arrival.at_s >= self._warmup_s:
            self.course.waits_s[exchange.arrival.priority_class.name].append(wait_s)

    def _step(self, engine: Engine) -> None:
        engine.is_stepping = not engine.batching.is_idle
        if engine.is_stepping:
            batch = engine.batching.schedule()
            if self._now_s >= self._warmup_s:
                self.course.preemptions += len(batch.preempted)
            self._at(self._now_s + batch.duration_s, self._stepped, (engine, batch))

    async def _stepped(self, argument: tuple[Engine, Batch]) -> None:
        engine, batch = argument
        gone = []
        for sequence in engine.batching.complete(batch):
            exchange = engine.exchanges[sequence]
            if exchange.first_s is None:
                self._first_token(exchange)
            if sequence.state is SequenceState.ENDED:
                gone.append(exchange)
        if gone:
            for exchange in gone:
                self._complete(engine, exchange)
            await self._queue.leave([(e.arrival.name, e.holding.ticket.attempt) for e in gone])
        self._step(engine)

    def _first_token(self, exchange: Exchange) -> None:
        exchange.first_s = self._now_s
        arrival = exchange.arrival
        if arrival.at_s >= self._warmup_s:
            self.course.first_tokens_s[arrival.priority_class.name].append(self._now_s - arrival.at_s)

    def _complete(self, engine: Engine, exchange: Exchange) -> None:
        del engine.exchanges[exchange.sequence], self._exchanges[exchange.arrival.name]
        started_s, first_s = exchange.granted_s, exchange.first_s or self._now_s
        self._school.teach(exchange.arrival, exchange.forecast, self._now_s - started_s, first_s - started_s)
        self._completed += 1
        if self._now_s >= self._warmup_s:
            self.course.requests += 1
            self.course.tokens += exchange.arrival.sizes.total_tokens

    async def _tick(self, second: int) -> None:
        await self._school.learning.step()
        if second % _RENEW_S == 0:
            await self._renew()
        if self._completed >= LEARNT_AFTER:
            self._sample()
        self._at(second + 1.0, self._tick, second + 1)

    async def _renew(self) -> None:
        """Do what `Upkeep` and `Mailbox.grow` do."""
        for exchange in self._exchanges.values():
            expectation = exchange.holding.ticket.expectation
            if expectation is not None and exchange.engine is not None:
                running_s = self._now_s - exchange.granted_s
                exchange.holding.wanted_tokens = expectation.tokens_after(running_s)
        await self._queue.renew([exchange.holding for exchange in self._exchanges.values()])
        await self._queue.sweep()

    def _sample(self) -> None:
        final = sum(e.arrival.sizes.total_tokens for e in self._exchanges.values() if e.engine)
        stored = sum(engine.batching.kv_tokens for engine in self._engines)
        self.course.samples.append(Sample(self._now_s, self._store.held_tokens, final, stored))
