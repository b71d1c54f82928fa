"""A cluster of replicas around one store, be it Redis, Valkey or the twin in memory, on a clock by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from extproc.admission.ports import Capacity, Holding, Placement, Standing, Ticket, WaitQueue
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.waitqueue import GrantFeed, Lifetimes, MemoryQueue, MemoryStore, RedisQueue
from extproc.waitqueue.client import connect, connect_feed

POOL = "llama-70b"
LIFETIMES = Lifetimes(lease_ms=12_000, heartbeat_ms=6_000, max_gap_ms=3_000)


class Clock:
    """Milliseconds that pass only when told."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


class Replica:
    """One replica as a test sees it: its queue, what it believes to hold, and the grants it heard."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: WaitQueue
        self.holdings: dict[str, Holding] = {}
        self.grants: list[tuple[str, int]] = []
        self.losses = 0
        self.listens = True

    async def ask(
        self,
        request_id: str,
        tokens: int = 100,
        *,
        class_rank: int = 0,
        tenant: str = "acme",
        max_wait_s: float = 30,
        attempt: str | None = None,
        max_requests: int = 100,
    ) -> Placement:
        """Enqueue a request and keep the holding, as the admission service does."""
        flow = FlowKey(tenant, PriorityClass(f"class-{class_rank}", class_rank))
        request = InferenceRequest(request_id, "llama-70b", flow, max_wait_s)
        holding = Holding(Ticket(request, tokens, attempt or f"{self.name}/{request_id}"))
        self.holdings[request_id] = holding
        placement = await self.queue.enqueue(holding, max_requests=max_requests)
        holding.is_granted = type(placement).__name__ == "Granted"
        return placement

    async def leave(self, *request_ids: str) -> None:
        """Give back what this replica holds for requests."""
        await self.queue.leave([(i, self.holdings.pop(i).ticket.attempt) for i in request_ids])

    async def renew(self, *request_ids: str) -> list[Standing]:
        """Renew some holdings, or all."""
        return await self.queue.renew([self.holdings[i] for i in request_ids or self.holdings])

    def on_grant(self, request_id: str, attempt: str, waited_ms: int) -> None:
        """Note a grant that was announced, as the mailbox does."""
        if not self.listens:
            return
        self.grants.append((request_id, waited_ms))
        holding = self.holdings.get(request_id)
        if holding and holding.ticket.attempt == attempt:
            holding.is_granted = True

    def on_loss(self) -> None:
        """Count the times the store came back empty."""
        self.losses += 1


class Cluster:
    """Replicas around one store. `clock` is the store's."""

    def __init__(self, stack: AsyncExitStack, wait_until: Any) -> None:
        self.clock = Clock()
        self._stack = stack
        self._wait_until = wait_until

    async def replica(self, name: str) -> Replica:
        """Add a replica."""
        raise NotImplementedError

    async def deafen(self, replica: Replica) -> None:
        """Lose the grants that are announced to a replica from now on."""
        raise NotImplementedError

    async def heard(self, replica: Replica, *grants: tuple[str, int]) -> None:
        """Wait until a replica heard of just these grants (request id, waited ms) since the last time."""
        await self._wait_until(lambda: len(replica.grants) >= len(grants))
        assert replica.grants == list(grants)
        replica.grants.clear()

    async def two_replicas(self, tokens: int | None = None, requests: int | None = None) -> list[Replica]:
        """Add replicas a and b and set the capacity."""
        replicas = [await self.replica("a"), await self.replica("b")]
        await replicas[0].queue.set_capacity(Capacity(tokens, requests))
        return replicas


class MemoryCluster(Cluster):
    """Replicas around the twin in memory."""

    def __init__(self, stack: AsyncExitStack, wait_until: Any) -> None:
        super().__init__(stack, wait_until)
        self.store = MemoryStore(self.clock, LIFETIMES)

    async def replica(self, name: str) -> Replica:
        replica = Replica(name)
        replica.queue = MemoryQueue(self.store, name, on_grant=replica.on_grant)
        return replica

    async def deafen(self, replica: Replica) -> None:
        replica.listens = False


class RedisCluster(Cluster):
    """Replicas around a real store, each with a client and a feed of its own."""

    def __init__(self, stack: AsyncExitStack, wait_until: Any, url: str) -> None:
        super().__init__(stack, wait_until)
        self.url = url
        self._feeds: dict[str, asyncio.Task[None]] = {}

    async def feed(self, replica: Replica) -> None:
        """Let a replica hear of its grants; returns once Redis has confirmed it."""
        client = await self._stack.enter_async_context(connect_feed(self.url, timeout_s=2.0))
        listeners, subscribed = {POOL: replica.on_grant}, asyncio.Event()
        feed = GrantFeed(client, replica.name, listeners=listeners, on_reconnect=subscribed.set)
        self._feeds[replica.name] = asyncio.create_task(feed.run())
        self._stack.push_async_callback(self.deafen, replica)
        await asyncio.wait_for(subscribed.wait(), 5)

    async def replica(self, name: str) -> Replica:
        replica = Replica(name)
        client = connect(self.url, timeout_s=2.0, max_connections=4)
        replica.queue = RedisQueue(
            await self._stack.enter_async_context(client),
            POOL,
            name,
            on_grant=replica.on_grant,
            on_loss=replica.on_loss,
            class_ranks=(0, 1, 10),
            lifetimes=LIFETIMES,
            timeout_s=2.0,
            clock_ms=self.clock,
        )
        await self.feed(replica)
        return replica

    async def deafen(self, replica: Replica) -> None:
        self._feeds[replica.name].cancel()
        await asyncio.wait([self._feeds[replica.name]])


@pytest.fixture(params=["valkey", "redis"])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Every test of the Redis side runs on both servers."""
    kind: str = request.param
    return kind


@pytest.fixture(params=["memory", "valkey", "redis"])
async def cluster(
    request: pytest.FixtureRequest,
    store_of_kind: Callable[[str], Any],
    wait_until: Any,
    no_task_left: None,
) -> AsyncIterator[Cluster]:
    """A cluster on each implementation of the queue: the tests that use it are the contract."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryCluster(stack, wait_until)
            return
        server = stack.enter_context(store_of_kind(request.param).lend())
        yield RedisCluster(stack, wait_until, server.url)


@pytest.fixture
async def redis_cluster(
    store_server: Any, wait_until: Any, no_task_left: None
) -> AsyncIterator[RedisCluster]:
    """A cluster on a real store, for what only a store can do."""
    async with AsyncExitStack() as stack:
        yield RedisCluster(stack, wait_until, store_server.url)
