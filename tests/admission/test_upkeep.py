"""The heartbeat of a pool."""

from __future__ import annotations

import asyncio

import pytest
from admission.world import Fickle, World

from extproc.admission.service import HandedOver

pytestmark = pytest.mark.looptime


def fickle(world: World) -> Fickle:
    return Fickle(world.memory)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_sweeps_every_second_and_renews_every_three():
    async with World(queue=fickle, heartbeat=True).running() as world:
        await asyncio.sleep(30)
        assert 27 <= world.queue.calls.count("sweep") <= 34  # the period is jittered by a tenth
        assert 7 <= world.queue.calls.count("renew") <= 11
        assert world.queue.calls.count("state") == len(world.heard.states)
        assert world.admission.state is world.heard.states[-1]


async def test_leases_and_waiters_outlive_their_expiry_as_long_as_they_are_renewed():
    async with World(heartbeat=True).running() as world:
        first = world.ask("r1", max_wait_s=100)
        await settle()
        second = world.ask("r2", max_wait_s=100)
        await asyncio.sleep(60)
        assert (world.store.held_requests, len(world.store.waiting)) == (1, 1)
        await world.end(first)
        await world.end(second)
    assert world.heard.swept_leases == 0


async def test_what_a_dead_replica_held_comes_back():
    async with World(heartbeat=True).running() as world:
        dead = World(replica="b", store=world.store)
        async with dead.running():
            forgotten = dead.ask("r1")  # its replica has no heartbeat
            await settle()
            waiting = world.ask("r2")
            await asyncio.sleep(14)
            assert world.is_held(waiting)
            assert world.heard.swept_leases == 1
            await world.end(waiting)
            await dead.end(forgotten)


async def test_a_wait_whose_place_was_taken_over_ends_its_exchange():
    async with World(heartbeat=True).running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            first = world.ask("r1")
            await settle()
            stale = world.ask("r2")
            await settle()
            again = other.ask("r2")
            with pytest.raises(HandedOver):
                await asyncio.wait_for(stale, 5)
            await world.end(first)
            await other.end(again)
    assert "handed over r2" in world.heard.words


async def test_a_lost_announcement_is_made_up_for_by_the_next_renewal():
    async with World(heartbeat=True).running() as world:
        first = world.ask("r1")
        await settle()
        second = world.ask("r2")
        await settle()
        world.store.listeners.clear()  # nobody hears of the grant
        await world.end(first)
        await settle()
        assert world.store.held_requests == 1
        assert not world.is_held(second)
        world.store.listeners["a"] = world.mailbox.deliver
        await asyncio.sleep(4.5)  # a renewal is due after 3 s, and may be a round of 1.1 s late
        assert world.is_held(second)
        await world.end(second)


async def test_it_can_be_asked_to_hurry():
    async with World(queue=fickle, heartbeat=True).running() as world:
        await asyncio.sleep(0.1)
        assert world.queue.calls.count("renew") == 1
        world.upkeep.renew_soon()
        await asyncio.sleep(0.1)
        assert world.queue.calls.count("renew") == 2


async def test_a_store_that_is_away_does_not_end_it():
    async with World(queue=fickle, heartbeat=True).running() as world:
        world.queue.is_away = True
        await asyncio.sleep(5)
        seen = len(world.heard.states)
        world.queue.is_away = False
        await asyncio.sleep(5)
        assert len(world.heard.states) > seen
