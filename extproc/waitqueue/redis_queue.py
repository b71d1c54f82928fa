"""The queue in Redis: a typed caller of the scripts, one for each pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
from extproc.waitqueue import scripts
from extproc.waitqueue.keys import pool_keys
from extproc.waitqueue.lifetimes import Lifetimes
from extproc.waitqueue.scripts import Script

T = TypeVar("T")

_BATCH = 500  # holdings a call: keeps every script under a millisecond
_MAX_GRANTS = 64  # as in include/grant.lua: so many means there may be more


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
        client: connected lazily; its pool bounds how many calls run at once.
        pool: whose queue.
        replica: this process' name in the cluster, unique for each start.
        on_grant: told of waiters that a renewal finds granted; `GrantFeed` tells of the others.
        on_loss: told that the store came back without what it held; a renewal should follow at once.
        class_ranks: ranks of the configured classes, for `state`.
        lifetimes: see `Lifetimes`.
        timeout_s: budget of one call, waiting for a connection included.
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
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._client = client
        self._replica = replica
        self._keys = pool_keys(pool)
        self._on_grant = on_grant
        self._class_ranks = tuple(class_ranks)
        self._lifetimes = lifetimes or Lifetimes()
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms
        self._on_loss = on_loss
        self._epoch = ""
        self._capacity: Capacity | None = None
        self._capacity_epoch = ""  # the life of the store that was told the capacity
        self.replicas = 1
        """Replicas alive, as the last renewal saw them."""

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        """Grant, queue or refuse a request; see `WaitQueue.enqueue`."""
        ticket = holding.ticket
        status, waited_ms, rank, enqueued_ms, ahead, drain = await self._call(
            scripts.ENQUEUE,
            {
                "id": ticket.request.id,
                "attempt": ticket.attempt,
                "replica": self._replica,
                "tokens": ticket.tokens,
                "class_rank": ticket.request.flow.priority_class.rank,
                "tenant": ticket.request.flow.tenant,
                "max_requests": max_requests,
                "may_wait": int(ticket.request.max_wait_s > 0),
                "lease_ms": self._lifetimes.lease_ms,
                "heartbeat_ms": self._lifetimes.heartbeat_ms,
            },
        )
        if status not in (_Status.GRANTED, _Status.QUEUED):
            return Refused(_REFUSALS[_Status(status)], ahead, float(drain) if drain else None)
        holding.rank, holding.enqueued_ms = rank, enqueued_ms
        return Granted(waited_ms) if status == _Status.GRANTED else Queued(waited_ms)

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Give back whatever each (request id, attempt) holds; see `WaitQueue.leave`."""
        for batch in _batches(tickets):
            flat = [word for pair in batch for word in pair]
            [granted] = await self._call(scripts.LEAVE, {"lease_ms": self._lifetimes.lease_ms}, *flat)
            if granted >= _MAX_GRANTS:
                await self.sweep()

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        """Keep holdings and this replica alive; see `WaitQueue.renew`."""
        standings: list[Standing] = []
        for batch in _batches(holdings) or [()]:  # a replica that holds nothing is alive, too
            standings += await self._renew_batch(batch)
        return standings

    async def sweep(self) -> Swept:
        """Take back what nobody renews, then grant what fits; see `WaitQueue.sweep`."""
        swept = Swept()
        while True:
            leases, waiters, granted = await self._call(
                scripts.SWEEP,
                {
                    "lease_ms": self._lifetimes.lease_ms,
                    "heartbeat_ms": self._lifetimes.heartbeat_ms,
                    "max_gap_ms": self._lifetimes.max_gap_ms,
                },
            )
            swept = Swept(swept.leases + leases, swept.waiters + waiters)
            if granted < _MAX_GRANTS:
                return swept

    async def set_capacity(self, capacity: Capacity) -> None:
        """Set what the pool may hold, then grant what fits; see `WaitQueue.set_capacity`."""
        self._capacity = capacity
        [granted] = await self._call(
            scripts.SET_CAPACITY,
            {
                "lease_ms": self._lifetimes.lease_ms,
                "tokens": "none" if capacity.tokens is None else capacity.tokens,
                "requests": "none" if capacity.requests is None else capacity.requests,
            },
        )
        self._capacity_epoch = self._epoch
        if granted >= _MAX_GRANTS:
            await self.sweep()

    async def state(self) -> PoolState:
        """Read the pool's figures; see `WaitQueue.state`."""
        known, tokens, requests, used, leases, replicas, drain, token_s, *backlog = await self._call(
            scripts.STATE, {}, *self._class_ranks
        )
        pairs = zip(backlog[::2], backlog[1::2], strict=True)
        return PoolState(
            held_tokens=used,
            held_requests=leases,
            capacity=Capacity(_limit(tokens), _limit(requests)) if known else None,
            backlog={r: ClassBacklog(*pair) for r, pair in zip(self._class_ranks, pairs, strict=True)},
            drain_tokens_per_s=float(drain) if drain else None,
            held_token_s=float(token_s),
            replicas=replicas,
        )

    async def _renew_batch(self, holdings: Sequence[Holding]) -> list[Standing]:
        self.replicas, *figures = await self._call(
            scripts.RENEW,
            {
                "replica": self._replica,
                "lease_ms": self._lifetimes.lease_ms,
                "heartbeat_ms": self._lifetimes.heartbeat_ms,
            },
            *[w for h in holdings for w in (h.ticket.request.id, h.ticket.attempt, int(h.is_granted))],
        )
        if self._capacity is not None and self._capacity_epoch != self._epoch:
            await self.set_capacity(self._capacity)
        standings = [Standing(figure) for figure in figures[::2]]
        for holding, standing, waited_ms in zip(holdings, standings, figures[1::2], strict=True):
            if standing is Standing.HELD and not holding.is_granted:
                self._on_grant(holding.ticket.request.id, holding.ticket.attempt, waited_ms)
        forgotten = [h for h, s in zip(holdings, standings, strict=True) if s is Standing.UNKNOWN]
        if forgotten:
            await self._restore(forgotten)
        return standings

    async def _restore(self, holdings: Sequence[Holding]) -> None:
        values: list[str | int] = []
        for holding in holdings:
            request = holding.ticket.request
            values += [
                request.id,
                holding.ticket.attempt,
                holding.ticket.tokens,
                request.flow.priority_class.rank,
                request.flow.tenant,
                holding.rank,
                holding.enqueued_ms,
                int(holding.is_granted),
            ]
        await self._call(
            scripts.RESTORE,
            {
                "replica": self._replica,
                "lease_ms": self._lifetimes.lease_ms,
                "heartbeat_ms": self._lifetimes.heartbeat_ms,
            },
            *values,
        )

    async def _call(self, script: Script, values: dict[str, str | int], *more: str | int) -> Any:
        """Run a script within the budget and return what follows the epoch in its reply.

        Raises:
            QueueUnavailable: Redis answered with a fault, not in time, or not at all.
        """
        now_ms = "" if self._clock_ms is None else self._clock_ms()
        arguments = script.arguments_for({"now_ms": now_ms, "epoch": self._epoch, **values}, *more)
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._evaluate(script, arguments)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise QueueUnavailable(f"{script.name}: {type(error).__name__}: {error}") from error
        epoch, *figures = reply
        known, self._epoch = self._epoch, epoch
        if known and known != epoch:
            self._on_loss()
        return figures

    async def _evaluate(self, script: Script, arguments: list[str | int]) -> Any:
        rest = (len(self._keys), *self._keys, *arguments)
        try:
            return await self._client.execute_command("EVALSHA", script.sha, *rest)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.source, *rest)


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]


def _limit(text: str) -> int | None:
    return None if text == "none" else int(text)
