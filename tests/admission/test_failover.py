"""The shared queue is lost and comes back; the real one is behind a `Fickle` that hides it."""

from __future__ import annotations

import asyncio

import pytest
from admission.world import Fickle, World, failover, request

from extproc.admission.failover import StoreLoss
from extproc.admission.ports import Capacity, Granted, Holding, Placement, Refused, Standing, Ticket
from extproc.admission.service import Shed
from extproc.domain.errors import QueueUnavailable
from extproc.domain.outcome import Refusal
from extproc.waitqueue import MemoryStore

pytestmark = pytest.mark.looptime


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def world_with(policy: str, *, tokens: int = 100, requests: int | None = None, replicas: int = 1) -> World:
    """Return a replica whose shared store is `world.store`, behind `world.primary`."""
    locals_: list[MemoryStore] = []

    def make(world: World):
        world.primary = Fickle(world.memory)  # type: ignore[attr-defined]
        world.locals = locals_  # type: ignore[attr-defined]
        return failover(world, world.primary, policy=StoreLoss(policy), replicas=replicas, made=locals_)

    return World(queue=make, heartbeat=True, tokens=tokens, requests=requests)


async def lose(world: World, *, capacity: bool = True) -> None:
    """Let the store go away, and the replica notice."""
    if capacity:
        await world.queue.set_capacity(world.store.capacity)
    world.primary.is_away = True
    world.upkeep.renew_soon()
    await settle()
    assert not world.queue.is_up


async def bring_back(world: World) -> None:
    world.primary.is_away = False
    world.upkeep.renew_soon()
    await settle()
    assert world.queue.is_up


async def test_local_keeps_limit_and_order_of_what_was_held_and_waited():
    async with world_with("local").running() as world:
        first = world.ask("r1")
        await settle()
        second = world.ask("r2")
        await settle()
        await lose(world)
        await asyncio.sleep(0.01)  # newcomers have a later millisecond than those who waited before
        third = world.ask("r3")
        await settle()
        assert not world.is_held(second)
        await world.end(first)
        await settle()
        assert (world.is_held(second), world.is_held(third)) == (True, False)
        await world.end(second)
        await world.end(third)
        await bring_back(world)
        assert not world.store.entries
    assert [w for w in world.heard.words if "store" in w] == ["store lost", "store back"]


async def test_local_outlives_every_expiry_while_the_store_stays_away():
    """Nobody else renews what the local queue believes in."""
    async with world_with("local").running() as world:
        first = world.ask("r1", max_wait_s=300)
        await settle()
        second = world.ask("r2", max_wait_s=300)
        await settle()
        await lose(world)
        await asyncio.sleep(60)
        assert not world.is_held(second)
        assert world.locals[0].held_requests == 1
        assert len(world.locals[0].waiting) == 1
        await world.end(first)
        await settle()
        assert world.is_held(second)
        await world.end(second)
        await bring_back(world)


@pytest.mark.parametrize(("replicas", "fits"), [(1, 4), (2, 2), (3, 1), (9, 1)])
async def test_local_grants_this_replicas_part_and_at_least_one_request(replicas, fits):
    async with world_with("local", tokens=400, replicas=replicas).running() as world:
        await lose(world)
        tasks = [world.ask(f"r{n}", 100) for n in range(6)]
        await settle()
        assert sum(map(world.is_held, tasks)) == fits
        for task in tasks:
            await world.end(task)
        await bring_back(world)


async def test_open_lets_everything_pass_those_who_waited_included():
    async with world_with("open").running() as world:
        first = world.ask("r1")
        await settle()
        second = world.ask("r2")
        await settle()
        await lose(world)
        third = world.ask("r3")
        await settle()
        assert all(map(world.is_held, (second, third)))
        await bring_back(world)
        assert world.store.held_requests == 3  # it is told of what was granted meanwhile, beyond the limit
        for task in (first, second, third):
            await world.end(task)
        await settle()
        assert not world.store.entries


async def test_closed_refuses_the_new_and_keeps_the_place_of_those_who_wait():
    async with world_with("closed").running() as world:
        first = world.ask("r1", max_wait_s=300)
        await settle()
        second = world.ask("r2", max_wait_s=300)
        await settle()
        await lose(world)
        with pytest.raises(Shed) as caught:
            await world.ask("r3")
        refused = caught.value.shedding
        assert (refused.refusal, refused.status) == (Refusal.STORE_UNAVAILABLE, 503)
        assert refused.retry_after_s
        await asyncio.sleep(30)
        await world.end(first)
        await settle()
        assert not world.is_held(second)  # nobody may say yes now
        await bring_back(world)
        assert world.is_held(second)
        await world.end(second)


@pytest.mark.parametrize("policy", ["local", "open", "closed"])
async def test_what_was_given_back_meanwhile_is_told_at_the_return(policy):
    async with world_with(policy).running() as world:
        first = world.ask("r1")
        await settle()
        await lose(world)
        await world.end(first)
        await settle()
        assert world.outbox.is_empty
        assert world.store.held_tokens == 60  # as the store still believes
        await bring_back(world)
        assert world.store.held_tokens == 0


async def test_the_return_heals_the_figures_within_one_renewal():
    async with world_with("local", tokens=120).running() as world:
        first = world.ask("r1")
        await settle()
        await lose(world)
        second, third = world.ask("r2"), world.ask("r3")
        await settle()
        assert (world.is_held(second), world.is_held(third)) == (True, False)
        await bring_back(world)
        assert world.store.held_requests == 2
        assert [request_id for _, request_id in world.store.waiting] == ["r3"]
        await world.end(first)
        await settle()
        assert world.is_held(third)
        for task in (second, third):
            await world.end(task)
        await settle()
        assert not world.store.entries


async def test_a_second_loss_during_the_return_keeps_the_debts():
    async with world_with("local").running() as world:
        first = world.ask("r1")
        await settle()
        await lose(world)
        await world.end(first)
        await settle()

        async def leave(_tickets):
            world.primary.is_away = True
            return await type(world.primary).leave(world.primary, _tickets)

        world.primary.leave = leave
        world.primary.is_away = False
        await world.upkeep.renew()
        assert not world.queue.is_up
        assert world.store.held_tokens == 60
        del world.primary.leave
        await bring_back(world)
        assert world.store.held_tokens == 0


class SlowToFail(Fickle):
    """Fails its first enqueue only after a while."""

    has_failed = False

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        if not self.has_failed:
            self.has_failed = True
            await asyncio.sleep(0.2)
            raise QueueUnavailable("enqueue: slow")
        return await super().enqueue(holding, max_requests=max_requests)


async def test_one_slow_call_is_no_loss():
    async with world_with("closed").running() as world:
        await asyncio.sleep(0.1)
        world.queue._primary = world.primary = SlowToFail(world.memory)
        holding = Holding(Ticket(request("r1"), 60, "a/1"))
        assert await world.queue.enqueue(holding, max_requests=10) == Granted(0)
        assert world.queue.is_up
        await world.queue.leave([("r1", "a/1")])


async def test_two_in_a_row_are_a_loss_and_the_next_sweep_regains():
    async with world_with("closed").running() as world:
        world.primary.is_away = True
        holding = Holding(Ticket(request("r1"), 60, "a/1"))
        assert isinstance(await world.queue.enqueue(holding, max_requests=10), Refused)
        assert not world.queue.is_up
        world.primary.is_away = False
        await world.queue.sweep()
        assert world.queue.is_up


async def test_a_loss_that_giving_back_notices_is_a_debt():
    async with world_with("local").running() as world:
        first = world.ask("r1")
        await settle()
        world.primary.is_away = True
        await world.end(first)
        await settle()
        assert not world.queue.is_up
        assert world.outbox.is_empty
        assert world.store.held_tokens == 60
        await bring_back(world)
        assert world.store.held_tokens == 0


async def test_many_calls_that_fail_together_lose_the_store_once():
    async with world_with("local", requests=2).running() as world:
        await world.queue.set_capacity(world.store.capacity)
        world.primary.is_away = True
        tasks = [world.ask(f"r{n}", 10) for n in range(5)]
        await settle()
        assert sum(map(world.is_held, tasks)) == 2
        assert world.heard.words.count("store lost") == 1
        for task in tasks:
            await world.end(task)
        await bring_back(world)


async def test_a_capacity_set_while_the_store_is_away_serves_the_next_loss():
    async with world_with("local").running() as world:
        await lose(world)
        await world.queue.set_capacity(Capacity(500, None))
        await bring_back(world)
        await lose(world, capacity=False)
        tasks = [world.ask(f"r{n}", 100) for n in range(6)]
        await settle()
        assert sum(map(world.is_held, tasks)) == 5
        for task in tasks:
            await world.end(task)
        await bring_back(world)


async def test_a_store_that_is_away_at_the_start_is_lost_by_telling_it_the_capacity():
    async with world_with("local").running() as world:
        world.primary.is_away = True
        await world.queue.set_capacity(Capacity(60, None))
        assert not world.queue.is_up
        first, second = world.ask("r1"), world.ask("r2")
        await settle()
        assert (world.is_held(first), world.is_held(second)) == (True, False)
        await bring_back(world)
        await world.end(first)
        await world.end(second)


async def test_renewals_say_what_is_believed_while_nobody_can_be_asked():
    async with world_with("closed").running() as world:
        await lose(world)
        held, waiting = (Holding(Ticket(request(n), 60, f"a/{n}"), is_granted=n == "x") for n in "xy")
        assert await world.queue.renew([held, waiting]) == [Standing.HELD, Standing.WAITING]
        await bring_back(world)


async def test_figures_come_from_whoever_decides_but_for_the_stores_own_count():
    async with world_with("local").running() as world:
        first = world.ask("r1")
        await settle()
        assert (await world.queue.state()).held_token_s is not None
        await lose(world)
        state = await world.queue.state()
        assert (state.held_tokens, state.held_token_s) == (60, None)
        await world.end(first)
        await settle()
        assert (await world.queue.state()).held_tokens == 0
        await bring_back(world)


async def test_figures_are_unknown_while_nobody_decides():
    async with world_with("closed").running() as world:
        await settle()
        await lose(world)
        with pytest.raises(QueueUnavailable):
            await world.queue.state()
        seen = len(world.heard.states)
        await asyncio.sleep(5)
        assert len(world.heard.states) == seen
        await bring_back(world)
