"""The queue of several replicas driven step by step on both implementations, and what must hold after each step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import redis

from extproc.admission.ports import Capacity, Holding, Refused, WaitQueue
from extproc.waitqueue import Lifetimes, MemoryQueue, MemoryStore, RedisQueue
from extproc.waitqueue.client import connect
from extproc.waitqueue.keys import pool_keys

POOL = "p"
LIFETIMES = Lifetimes(lease_ms=12_000, heartbeat_ms=6_000, max_gap_ms=3_000)
WAITING, LEASES, HEARTBEATS, RESERVATIONS, REQUESTS, TOTALS, CAPACITY, *_ = pool_keys(POOL)


@dataclass
class Side:
    """One implementation of the queue with its replicas, and what each of them heard."""

    queues: dict[str, WaitQueue] = field(default_factory=dict)
    grants: list[tuple[str, str, int]] = field(default_factory=list)
    is_deaf: bool = False

    def on_grant(self, request_id: str, attempt: str, waited_ms: int) -> None:
        """Note a grant; a `GrantListener` of every replica."""
        self.grants.append((request_id, attempt, waited_ms))

    def start(self, replica: str) -> None:
        """Start a replica."""
        raise NotImplementedError

    def take_grants(self) -> list[tuple[str, str, int]]:
        """Return the grants announced since the last call, in a fixed order."""
        grants, self.grants = sorted(self.grants), []
        return grants


class MemorySide(Side):
    """The twin in memory."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.store = MemoryStore(clock, LIFETIMES)

    def start(self, replica: str) -> None:
        def listen(*grant: Any) -> None:
            if not self.is_deaf:
                self.on_grant(*grant)

        self.queues[replica] = MemoryQueue(self.store, replica, on_grant=listen)


class RedisSide(Side):
    """The scripts on a real server. Announcements are read by a subscription of the test's own."""

    def __init__(self, clock: Any, server: Any) -> None:
        super().__init__()
        self._clock = clock
        self.probe = redis.Redis(unix_socket_path=server.path, decode_responses=True, protocol=2)
        self.probe.flushall()
        self._announcements = self.probe.pubsub()
        self._announcements.psubscribe("{forebay:v1:p}:waiting:*")
        self.client = connect(server.url, timeout_s=5, max_connections=100)

    def start(self, replica: str) -> None:
        self.queues[replica] = RedisQueue(
            self.client,
            POOL,
            replica,
            on_grant=self.on_grant,
            class_ranks=(),
            lifetimes=LIFETIMES,
            timeout_s=5,
            clock_ms=self._clock,
        )

    def take_grants(self) -> list[tuple[str, str, int]]:
        self._announcements.ping()  # whatever was published before comes before the answer
        while (message := self._announcements.get_message(timeout=5)) is None or message["type"] != "pong":
            if message is not None and message["type"] == "pmessage" and not self.is_deaf:
                waited_ms, attempt, request_id = message["data"].split(" ", 2)
                self.on_grant(request_id, attempt, int(waited_ms))
        return super().take_grants()

    def close(self) -> None:
        self._announcements.close()
        self.probe.close()


@dataclass
class Stored:
    """What the store holds, read past the scripts."""

    waiting: list[tuple[str, int]]
    leases: set[str]
    reservations: dict[str, int]
    heartbeats: set[str]
    requests: set[str]
    capacity: Capacity | None
    without_expiry: set[str]

    @classmethod
    def read(cls, probe: redis.Redis) -> Stored:
        """Read everything in one transaction."""
        pipe = probe.pipeline(transaction=True)
        pipe.zrange(WAITING, 0, -1, withscores=True).zrange(LEASES, 0, -1).hgetall(RESERVATIONS)
        pipe.zrange(HEARTBEATS, 0, -1).hkeys(REQUESTS).hgetall(CAPACITY)
        for key in pool_keys(POOL):
            pipe.ttl(key)
        waiting, leases, reservations, heartbeats, requests, limits, *ttls = pipe.execute()
        return cls(
            waiting=[(name, int(score)) for name, score in waiting],
            leases=set(leases),
            reservations={name: int(tokens) for name, tokens in reservations.items()},
            heartbeats=set(heartbeats),
            requests=set(requests),
            capacity=Capacity(
                *(None if limits[n] == "none" else int(limits[n]) for n in ("tokens", "requests"))
            )
            if limits
            else None,
            without_expiry={key for key, ttl in zip(pool_keys(POOL), ttls, strict=True) if ttl == -1},
        )

    @property
    def held_tokens(self) -> int:
        """The sum of the reservations."""
        return sum(self.reservations.values())

    def exceeds(self, more_tokens: int = 0, more_requests: int = 0) -> bool:
        """Tell whether what is held, and more, is beyond the capacity; a single lease never is."""
        limit = self.capacity or Capacity(0, 0)
        held = len(self.leases) + more_requests
        tokens = self.held_tokens + more_tokens
        return held > 1 and (
            (limit.tokens is not None and tokens > limit.tokens)
            or (limit.requests is not None and held > limit.requests)
        )


class Drive:
    """Does the same on every side, one step at a time, and compares what comes back."""

    def __init__(self, server: Any, *, with_twin: bool) -> None:
        self.now_ms = 1_800_000_000_000
        self._loop = asyncio.new_event_loop()
        self.redis = RedisSide(self.clock, server)
        self.sides: list[Side] = [self.redis, *([MemorySide(self.clock)] if with_twin else [])]
        self.holdings: list[dict[str, Holding]] = [{} for _ in self.sides]  # by attempt, for each side

    def clock(self) -> int:
        """Return the milliseconds of both stores."""
        return self.now_ms

    def start(self, replica: str) -> None:
        """Start a replica on every side."""
        for side in self.sides:
            side.start(replica)

    def same(self, replica: str, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Call a queue on every side and return what all of them answered."""
        answers = [self.run(getattr(s.queues[replica], verb)(*args, **kwargs)) for s in self.sides]
        return self._agreed(answers)

    def enqueue(self, replica: str, holding: Holding, max_requests: int) -> Any:
        """Enqueue a holding on every side, each with a copy of its own."""
        answers = []
        for side, holdings in zip(self.sides, self.holdings, strict=True):
            own = holdings[holding.ticket.attempt] = deepcopy(holding)
            answer = self.run(side.queues[replica].enqueue(own, max_requests=max_requests))
            own.is_granted = type(answer).__name__ == "Granted"
            answers.append((answer, own.rank, own.enqueued_ms))
        return self._agreed(answers)[0]

    def renew(self, replica: str, attempts: list[str]) -> Any:
        """Renew what attempts hold."""
        answers = []
        for side, holdings in zip(self.sides, self.holdings, strict=True):
            known = [holdings[attempt] for attempt in attempts]
            was_deaf, side.is_deaf = side.is_deaf, False  # what a renewal tells itself cannot be lost
            answers.append(self.run(side.queues[replica].renew(known)))
            side.is_deaf = was_deaf
        return self._agreed(answers)

    def deliver(self) -> list[tuple[str, str, int]]:
        """Deliver what was announced, and return it."""
        grants = self._agreed([side.take_grants() for side in self.sides])
        for holdings in self.holdings:
            for _, attempt, _ in grants:
                if attempt in holdings:
                    holdings[attempt].is_granted = True
        return grants

    def close(self) -> None:
        """Close connections and the loop."""
        self.run(self.redis.client.aclose())
        self._loop.close()
        self.redis.close()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run a call to its end."""
        return self._loop.run_until_complete(call)

    def stored(self) -> Stored:
        """Return what the real store holds."""
        return Stored.read(self.redis.probe)

    @staticmethod
    def _agreed(answers: list[Any]) -> Any:
        assert all(_rounded(answer) == _rounded(answers[0]) for answer in answers), answers
        return answers[0]


def _rounded(answer: Any) -> Any:
    """Return an answer without the digits that the scripts do not tell."""
    if isinstance(answer, tuple):
        return tuple(_rounded(part) for part in answer)
    if isinstance(answer, Refused) and answer.drain_tokens_per_s is not None:
        return replace(answer, drain_tokens_per_s=pytest.approx(answer.drain_tokens_per_s, abs=2e-3))
    return answer


@pytest.fixture
def drive_of(store_server: Any) -> Any:
    """`drive_of(with_twin=...)`: a fresh drive on an emptied store."""
    return lambda *, with_twin: Drive(store_server, with_twin=with_twin)
