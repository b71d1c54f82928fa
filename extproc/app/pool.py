"""Wires what belongs to one pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from redis.asyncio import Redis

from extproc.admission.failover import FailoverQueue, StoreLoss
from extproc.admission.mailbox import Mailbox
from extproc.admission.outbox import Outbox
from extproc.admission.ports import Capacity
from extproc.admission.service import Admission
from extproc.admission.upkeep import Upkeep
from extproc.control.capacity import AutoCapacity, ReadEngines
from extproc.control.context import LearnedContext
from extproc.domain.errors import QueueUnavailable
from extproc.domain.forecast import Budget, Reserve
from extproc.domain.request import PriorityClass
from extproc.domain.response import Ended, UsageSource
from extproc.learning import Learning
from extproc.lessons import RedisLessons
from extproc.ops.metrics import Metrics, PoolLabels
from extproc.processor.gate import Pool
from extproc.settings import PoolSettings, Settings
from extproc.waitqueue import Lifetimes, MemoryQueue, MemoryStore, RedisQueue

_LEISURE = 4  # nobody waits for lessons: their budget is longer than that of a decision
_MOST_ESTIMATES = 20  # shown by status

Loop = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs until it is cancelled."""


class PoolRuntime:
    """One pool's queue, mailbox, outbox and upkeep in this replica.

    Args:
        pool: the pool's settings.
        settings: those of the whole.
        client: the shared store.
        replica: this process' name.
        metrics: where to count.
        read_engines: asks engines for their KV-cache tokens.
        read_contexts: asks them for their context lengths.
    """

    def __init__(
        self,
        pool: PoolSettings,
        settings: Settings,
        *,
        client: Redis,
        replica: str,
        metrics: Metrics,
        read_engines: ReadEngines,
        read_contexts: ReadEngines,
    ) -> None:
        self.settings = pool
        self._classes = [PriorityClass(c.name, c.rank) for c in settings.classes]
        self._lifetimes = Lifetimes(
            lease_ms=round(settings.leases.lease_s * 1000),
            heartbeat_ms=round(settings.leases.heartbeat_s * 1000),
            max_gap_ms=round(settings.leases.sweep_every_s * 3000),
        )
        self._replica = replica
        labels = PoolLabels(pool.name, pool.device or pool.name, self._classes)
        observer = metrics.pool_observer(labels)
        self.mailbox = Mailbox(self._bounce)
        self.primary = RedisQueue(
            client,
            pool.name,
            replica,
            on_grant=self.mailbox.deliver,
            on_loss=self._on_loss,
            class_ranks=[c.rank for c in self._classes],
            lifetimes=self._lifetimes,
            timeout_s=settings.redis.timeout_s,
        )
        self.queue = FailoverQueue(
            self.primary,
            self.mailbox,
            observer,
            policy=StoreLoss(settings.on_store_loss),
            make_local=self._make_local,
            replicas=lambda: self.primary.replicas,
        )
        self.outbox = Outbox(self.queue)
        self.admission = Admission(
            self.queue,
            self.mailbox,
            self.outbox,
            observer,
            replica=replica,
            max_requests=pool.queue.max_requests,
        )
        self.upkeep = Upkeep(
            self.queue,
            self.mailbox,
            self.admission,
            observer,
            sweep_every_s=settings.leases.sweep_every_s,
            renew_every_s=settings.leases.renew_every_s,
        )
        self._read_engines = read_engines
        self._context = LearnedContext(pool.backends.endpoints, read_engines=read_contexts)
        lessons = RedisLessons(client, pool.name, timeout_s=settings.redis.timeout_s * _LEISURE)
        self.learning = Learning(lessons, observer)

    def gate_pool(self) -> Pool:
        """Return the pool as the gate needs it."""
        return Pool(
            self.settings.name,
            self.admission,
            self.settings.queue.max_wait_s,
            self.budget,
            self.learning,
            UsageSource(self.settings.usage),
            self.settings.usage_sample,
            asks_for_usage=self.settings.stream_usage == "inject",
        )

    @property
    def context_tokens(self) -> int | None:
        """The model's context length: as configured, or as the engines tell it; None when unknown."""
        return self.settings.context_tokens or self._context.tokens

    def budget(self) -> Budget:
        """Return how outputs are budgeted at present."""
        settings = self.settings
        return Budget(settings.default_output_tokens, self.context_tokens, Reserve(settings.reserve))

    async def start(self) -> Sequence[Loop]:
        """Tell the store what the pool may hold, and return the loops to run."""
        capacity = self.settings.capacity
        loops: list[Loop] = [self.outbox.run, self.upkeep.run, self.learning.run]
        if self.settings.context_tokens is None and self.settings.backends.endpoints:
            loops.append(self._context.run)
        if capacity.tokens != "auto":
            await self.queue.set_capacity(Capacity(capacity.tokens, capacity.requests))
            return loops
        auto = AutoCapacity(
            self.settings.backends.endpoints,
            capacity.requests,
            read_engines=self._read_engines,
            set_capacity=self.queue.set_capacity,
        )
        await auto.step()
        return [*loops, auto.run]

    async def has_company(self) -> bool:
        """Ask the store whether another replica lives; a renewal may not have seen one that came just now."""
        try:
            return (await self.queue.state()).replicas > 1
        except QueueUnavailable:
            return self.primary.replicas > 1

    def status(self) -> dict[str, Any]:
        """Return the pool's part of `GET /api/v1/status`; figures are the cluster's but for `own`."""
        state, settings = self.admission.state, self.settings
        capacity = state.capacity if state else None
        backlog = state.backlog if state else {}
        return {
            "name": settings.name,
            "mode": settings.mode,
            "models": list(settings.models),
            "backends": list(settings.backends.endpoints),
            "context_tokens": self.context_tokens,
            "store_up": self.queue.is_up,
            "capacity": {
                "tokens": capacity.tokens if capacity else None,
                "requests": capacity.requests if capacity else None,
            },
            "held": {
                "tokens": state.held_tokens if state else None,
                "requests": state.held_requests if state else None,
            },
            "waiting": {
                c.name: {"requests": b.requests if b else 0, "tokens": b.tokens if b else 0}
                for c in self._classes
                for b in [backlog.get(c.rank)]
            },
            "drain_tokens_per_s": state.drain_tokens_per_s if state else None,
            "replicas": state.replicas if state else None,
            "estimates": self._estimates(),
            "own": {
                "held": sum(h.is_granted for h in self.mailbox.holdings()),
                "waiting": len(self.mailbox.waiting()),
            },
        }

    def note(self, ended: Ended, source: UsageSource) -> None:
        """Learn from a response that is over, where that is what the pool learns from."""
        if self.settings.usage == source:
            self.learning.note(ended)

    def _estimates(self) -> list[dict[str, Any]]:
        """Return how right estimates were of late, of those models and tenants who teach most."""
        habits = sorted(self.learning.all_habits().items(), key=lambda item: -item[1].lessons)
        return [
            {
                "model": key.model,
                "tenant": key.tenant,
                "lessons": known.lessons,
                "output_bias": known.calibration.output_bias,
                "output_spread": known.calibration.output_spread,
                "prompt_bias": known.calibration.prompt_bias,
                "is_careful": known.calibration.is_bad,
            }
            for key, known in habits[:_MOST_ESTIMATES]
        ]

    def _bounce(self, request_id: str, attempt: str) -> None:
        """Give back a grant that nobody here expects."""
        self.outbox.post(request_id, attempt)

    def _on_loss(self) -> None:
        self.upkeep.renew_soon()

    def _make_local(self, capacity: Capacity, sharers: int) -> MemoryQueue:
        """Make the queue that serves while the store is away.

        Its clock is this machine's, in the unit of Redis' TIME, so that ranks given by either compare.
        """
        store = MemoryStore(lambda: round(time.time() * 1000), self._lifetimes, capacity, sharers)
        return MemoryQueue(store, self._replica, on_grant=self.mailbox.deliver)
