"""Failover around a real store that is paused, killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from admission.world import World, failover

from extproc.admission.failover import StoreLoss
from extproc.admission.ports import Capacity, PoolState
from extproc.admission.service import Shed
from extproc.domain.outcome import Refusal
from extproc.waitqueue import GrantFeed, RedisQueue
from extproc.waitqueue.client import connect, connect_feed

POOL = "llama-70b"
BUDGET_S = 0.5


@asynccontextmanager
async def replica(store: Any, name: str, policy: str) -> AsyncIterator[World]:
    """Run a replica, its heartbeat quick, on a real store."""
    async with AsyncExitStack() as stack:
        client = connect(store.url, timeout_s=BUDGET_S, max_connections=8)
        feed_client = connect_feed(store.url, timeout_s=BUDGET_S)
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(feed_client.aclose)

        def make(world: World):
            primary = RedisQueue(
                client,
                POOL,
                name,
                on_grant=world.mailbox.deliver,
                on_loss=world.renew_soon,
                timeout_s=BUDGET_S,
            )
            world.primary = primary  # type: ignore[attr-defined]
            return failover(world, primary, policy=StoreLoss(policy))

        world = World(queue=make, replica=name, heartbeat=True, sweep_every_s=0.05, renew_every_s=0.1)
        feed = GrantFeed(
            feed_client,
            name,
            listeners={POOL: world.mailbox.deliver},
            on_reconnect=world.upkeep.renew_soon,
        )
        listening = asyncio.create_task(feed.run())
        try:
            async with asyncio.timeout(30), world.running():
                yield world
        finally:
            listening.cancel()
            await asyncio.wait([listening])


def store_holds(world: World, *, leases: int, waiters: int) -> Any:
    """Return a condition: the store itself has just these."""

    async def holds() -> bool:
        state: PoolState = await world.primary.state()  # type: ignore[attr-defined]
        return (state.held_requests, sum(b.requests for b in state.backlog.values())) == (leases, waiters)

    return holds


@pytest.mark.parametrize("policy", ["local", "open", "closed"])
async def test_a_silent_store_is_noticed_within_the_budget_and_healed_at_its_return(
    policy, own_store, wait_until, no_task_left
):
    async with replica(own_store, "a", policy) as world:
        await world.queue.set_capacity(Capacity(100, None))
        first = world.ask("r1")
        await wait_until(lambda: world.is_held(first))
        second = world.ask("r2")
        await wait_until(store_holds(world, leases=1, waiters=1))
        own_store.pause()
        try:
            async with asyncio.timeout(BUDGET_S * 8):
                third = world.ask("r3")
                if policy == "closed":
                    with pytest.raises(Shed) as caught:
                        await third
                    assert caught.value.shedding.refusal is Refusal.STORE_UNAVAILABLE
                elif policy == "open":
                    await wait_until(lambda: world.is_held(second) and world.is_held(third))
                else:
                    await wait_until(lambda: not world.queue.is_up)
                    assert not world.is_held(second)
                    await world.end(first)
                    await wait_until(lambda: world.is_held(second))
                    assert not world.is_held(third)
        finally:
            own_store.resume()
        await wait_until(lambda: world.queue.is_up)
        waiters = {"local": 1, "open": 0, "closed": 1}[policy]
        leases = {"local": 1, "open": 3, "closed": 1}[policy]
        await wait_until(store_holds(world, leases=leases, waiters=waiters))
        for task in (first, second, third):
            if not task.done():
                await world.end(task)
        await wait_until(store_holds(world, leases=0, waiters=0))


@pytest.mark.parametrize("policy", ["local", "open", "closed"])
async def test_a_store_that_comes_back_empty_is_told_of_everything(
    policy, own_store, wait_until, no_task_left
):
    async with replica(own_store, "a", policy) as world:
        await world.queue.set_capacity(Capacity(100, None))
        first = world.ask("r1", 50)
        debt = world.ask("r0", 50)
        await wait_until(lambda: world.is_held(first) and world.is_held(debt))
        second = world.ask("r2", 60)
        await wait_until(store_holds(world, leases=2, waiters=1))
        own_store.stop()
        await wait_until(lambda: not world.queue.is_up)
        await world.end(debt)
        await wait_until(lambda: world.outbox.is_empty)
        assert world.is_held(second) == (policy == "open")
        own_store.start()
        await wait_until(lambda: world.queue.is_up)
        await wait_until(
            store_holds(world, leases=2 if policy == "open" else 1, waiters=0 if policy == "open" else 1)
        )
        await world.end(first)
        await wait_until(lambda: world.is_held(second))
        await world.end(second)
        await wait_until(store_holds(world, leases=0, waiters=0))
        assert (await world.primary.state()).capacity == Capacity(100, None)


@pytest.mark.parametrize("policy", ["local", "open", "closed"])
async def test_a_replica_that_starts_before_its_store_serves_by_policy_and_joins_later(
    policy, own_store, wait_until, no_task_left
):
    own_store.stop()
    async with replica(own_store, "a", policy) as world:
        await world.queue.set_capacity(Capacity(60, None))
        assert not world.queue.is_up
        first = world.ask("r1")
        if policy == "closed":
            with pytest.raises(Shed):
                await first
        else:
            await wait_until(lambda: world.is_held(first))
        second = None if policy == "closed" else world.ask("r2")
        if second is not None:
            await wait_until(lambda: second.held.is_set() or len(world.mailbox.waiting()) == 1)
            assert world.is_held(second) == (policy == "open")
        own_store.start()
        await wait_until(lambda: world.queue.is_up)
        await wait_until(
            store_holds(
                world,
                leases={"local": 1, "open": 2, "closed": 0}[policy],
                waiters={"local": 1, "open": 0, "closed": 0}[policy],
            )
        )
        for task in (first, second):
            if task is not None and not task.done():
                await world.end(task)
        await wait_until(store_holds(world, leases=0, waiters=0))


async def test_a_grant_made_by_another_replica_arrives(own_store, wait_until, no_task_left):
    async with replica(own_store, "a", "local") as world, replica(own_store, "b", "local") as other:
        await world.queue.set_capacity(Capacity(100, None))
        first = world.ask("r1")
        await wait_until(lambda: world.is_held(first))
        second = other.ask("r2")
        await wait_until(store_holds(world, leases=1, waiters=1))
        await world.end(first)
        await wait_until(lambda: other.is_held(second))
        await other.end(second)
        await wait_until(store_holds(world, leases=0, waiters=0))
