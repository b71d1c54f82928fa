"""Admission of single requests; time is the loop's own and virtual."""

from __future__ import annotations

import asyncio

import pytest
from admission.world import BATCH, World, request

from extproc.admission.mailbox import Waiter
from extproc.admission.ports import Holding, Placement, Queued, WaitQueue
from extproc.admission.service import HandedOver, Shed
from extproc.domain.outcome import Refusal
from extproc.domain.tokens import Estimate

pytestmark = pytest.mark.looptime


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(10):
        await asyncio.sleep(0)


async def shed(task: asyncio.Task) -> Shed:
    with pytest.raises(Shed) as caught:
        await task
    return caught.value


async def test_a_request_that_fits_goes_on_at_once_and_gives_back_at_its_end():
    async with World().running() as world:
        async with world.admission.admit(request("r1"), Estimate(40, 20)) as grant:
            assert (grant.tokens, grant.waited_ms) == (60, 0)
            assert world.store.held_tokens == 60
            assert world.admission.holds_anything
        await settle()
        assert world.store.held_tokens == 0
        assert not world.admission.holds_anything
    assert world.heard.words == ["admitted r1 after 0"]


async def test_a_request_that_does_not_fit_waits_for_room_and_is_told_how_long():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        second = world.ask("r2")
        await asyncio.sleep(4)
        assert not world.is_held(second)
        await world.end(first)
        grant = await world.end(second)
        assert grant.waited_ms == 4000
    assert world.heard.words == ["admitted r1 after 0", "admitted r2 after 4"]


async def test_a_higher_class_is_served_before_one_that_came_earlier():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        batch = world.ask("batch", priority_class=BATCH)
        await settle()
        urgent = world.ask("urgent")
        await settle()
        await world.end(first)
        await settle()
        assert (world.is_held(urgent), world.is_held(batch)) == (True, False)
        await world.end(urgent)
        await world.end(batch)


async def test_who_waits_too_long_is_refused_with_a_time_to_come_back():
    async with World(heartbeat=True).running() as world:
        first = world.ask("r1")
        await settle()
        refused = (await shed(world.ask("r2", max_wait_s=2.5))).shedding
        assert asyncio.get_running_loop().time() == pytest.approx(2.5, abs=0.01)
        assert (refused.refusal, refused.status) == (Refusal.WAIT_TIMEOUT, 429)
        assert refused.retry_after_s is not None
        assert 1 <= refused.retry_after_s <= 60
        assert "2.5 s" in refused.message
        await settle()
        assert not world.store.waiting
        await world.end(first)
    assert world.heard.words[1:] == ["shed r2: wait_timeout"]


async def test_who_asks_not_to_be_queued_is_refused_at_once():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        assert (await shed(world.ask("r2", max_wait_s=0))).shedding.refusal is Refusal.NOT_QUEUED
        await world.end(first)
        await settle()
        await world.end(world.ask("r3", max_wait_s=0))  # with room it goes on all the same


async def test_a_request_larger_than_the_pool_is_refused_and_not_asked_back():
    async with World().running() as world:
        refused = (await shed(world.ask("r1", 101))).shedding
    assert (refused.refusal, refused.status, refused.retry_after_s) == (Refusal.NEVER_FITS, 413, None)
    assert "101 tokens" in refused.message


async def test_no_wish_is_so_large_that_it_spoils_the_figures_where_only_requests_count():
    async with World(tokens=None, requests=2).running() as world:
        async with world.admission.admit(request("r1"), Estimate(10, 2**62 * 100)) as grant:
            assert world.store.held_tokens == grant.tokens < 2**53 / 1000
        await settle()
        assert world.store.held_tokens == 0


async def test_a_full_queue_refuses_and_names_a_time():
    async with World(max_requests=1).running() as world:
        first = world.ask("r1")
        await settle()
        second = world.ask("r2")
        await settle()
        refused = (await shed(world.ask("r3"))).shedding
        assert refused.refusal is Refusal.QUEUE_FULL
        assert refused.retry_after_s
        await world.end(first)
        await world.end(second)


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_client_that_goes_away_leaves_nothing_behind(is_waiting):
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        gone = world.ask("r2") if is_waiting else first
        await settle()
        gone.cancel()
        await asyncio.wait([gone])
        assert gone.cancelled()
        await settle()
        assert len(world.store.entries) == int(is_waiting)
        if is_waiting:
            await world.end(first)
    assert ("withdrawn r2" in world.heard.words) == is_waiting


class Slow:
    """A queue that answers late: what a cancellation finds on its way."""

    def __init__(self, queue: WaitQueue, delay_s: float) -> None:
        self._queue = queue
        self._delay_s = delay_s
        self.leave, self.renew, self.sweep = queue.leave, queue.renew, queue.sweep

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        placement = await self._queue.enqueue(holding, max_requests=max_requests)
        await asyncio.sleep(self._delay_s)
        return placement


async def test_a_client_that_goes_while_the_queue_is_being_asked_leaves_nothing_behind():
    async with World(queue=lambda world: Slow(world.memory, 1)).running() as world:
        asking = world.ask("r1")
        await settle()
        assert world.store.held_tokens == 60
        asking.cancel()
        await asyncio.wait([asking])
        await settle()
        assert not world.store.entries
    assert world.heard.words == ["withdrawn r1"]


class GrantedInTheSameBreath:
    """A queue whose grant arrives in the loop turn in which the wait's time is up."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.leave = world.memory.leave

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        loop, wait_s = asyncio.get_running_loop(), holding.ticket.request.max_wait_s
        attempt = holding.ticket.attempt
        loop.call_later(wait_s, loop.call_soon, self._world.mailbox.deliver, "r1", attempt, 1000)
        return Queued(0)


async def test_a_grant_in_the_same_breath_as_the_timeout_counts():
    async with World(queue=GrantedInTheSameBreath).running() as world:
        task = world.ask("r1", max_wait_s=1)
        grant = await world.end(task)
        assert grant.waited_ms == 1000
    assert world.heard.words == ["admitted r1 after 1"]


async def test_news_that_come_before_the_answer_are_not_lost():
    async with World(queue=lambda world: Slow(world.memory, 1)).running() as world:
        first = world.ask("r1")
        await asyncio.sleep(0.1)
        second = world.ask("r2")
        await settle()
        await world.end(first)  # makes room while r2's enqueue has not returned yet
        await world.end(second)
    assert world.heard.words[0].startswith("admitted r1")
    assert world.heard.words[1].startswith("admitted r2")


async def test_the_wait_of_an_earlier_attempt_counts_for_a_later_one():
    """Envoy brings a request again: its budget goes on from where it was."""
    async with World().running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            first = world.ask("r1")
            await settle()
            waiting = world.ask("r2", max_wait_s=10)
            await asyncio.sleep(7)
            again = other.ask("r2", max_wait_s=10)
            refused = await shed(again)
            assert refused.shedding.refusal is Refusal.WAIT_TIMEOUT
            assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.01)
            waiting.cancel()
            await world.end(first)


async def test_what_a_later_attempt_took_over_is_not_given_back_by_the_earlier():
    async with World().running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            first = world.ask("r1")
            await settle()
            again = other.ask("r1")
            await settle()
            assert other.is_held(again)
            await world.end(first)
            await settle()
            assert world.store.held_tokens == 60
            await world.end(again)
            await settle()
            assert world.store.held_tokens == 0


async def test_draining_alone_refuses_the_new_and_lets_the_old_go_on():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        waiting = world.ask("r2", can_move=True)
        await settle()
        world.admission.drain(can_hand_over=False)
        refused = (await shed(world.ask("r3", can_move=True))).shedding
        assert (refused.refusal, refused.status) == (Refusal.DRAINING, 503)
        await world.end(first)
        await world.end(waiting)
    assert "shed r3: draining" in world.heard.words


async def test_draining_beside_others_leaves_waiters_their_place():
    async with World().running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            first = world.ask("r1")
            await settle()
            movable, fixed = world.ask("r2", can_move=True), world.ask("r3")
            await settle()
            world.admission.drain(can_hand_over=True)
            with pytest.raises(HandedOver):
                await movable
            with pytest.raises(HandedOver):
                await world.ask("r4", can_move=True)
            await settle()
            assert [request_id for _, request_id in world.store.waiting] == ["r2", "r3"]
            again = other.ask("r2", can_move=True)
            await world.end(first)
            await world.end(again)
            await world.end(fixed)
    assert world.heard.words[1:3] == ["handed over r2", "handed over r4"]


async def test_a_grant_that_comes_between_two_attempts_waits_for_the_later():
    async with World().running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            first = other.ask("r1")
            await settle()
            waiting = world.ask("r2", can_move=True)
            await asyncio.sleep(3)
            world.admission.drain(can_hand_over=True)
            with pytest.raises(HandedOver):
                await waiting
            await other.end(first)  # grants r2, which nobody has brought yet
            await settle()
            assert world.store.entries["r2"].is_granted
            assert (await other.end(other.ask("r2"))).waited_ms == 3000


async def test_the_end_of_a_drain_refuses_everybody_who_still_waits():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        waiting = world.ask("r2")
        await settle()
        world.admission.drain(can_hand_over=False)
        world.admission.shed_waiters()
        assert (await shed(waiting)).shedding.refusal is Refusal.DRAINING
        await settle()
        assert not world.store.waiting
        await world.end(first)


async def test_a_request_handed_over_while_it_is_granted_keeps_its_lease_for_the_other():
    async with World(queue=lambda world: Slow(world.memory, 1)).running() as world:
        other = World(replica="b", store=world.store)
        async with other.running():
            asking = world.ask("r1", can_move=True)
            await settle()
            world.admission.drain(can_hand_over=True)
            with pytest.raises(HandedOver):
                await asking
            assert world.mailbox.holdings() == []
            assert world.store.held_tokens == 60
            again = other.ask("r1")
            await settle()
            assert other.is_held(again)
            await world.end(again)
            await settle()
            assert world.store.held_tokens == 0


async def test_the_mailbox_bounces_a_grant_that_nobody_expects():
    async with World().running() as world:
        first = world.ask("r1")
        await settle()
        world.mailbox.deliver("r1", "a/999", 5)  # an attempt that has gone
        await settle()
        assert world.store.held_tokens == 60  # another attempt's grant is not ours to give back
        assert "a/999" in world.store.departed
        await world.end(first)


async def test_a_waiter_heeds_its_first_news_only():
    async with World().running() as world:
        with world.mailbox.expect(_ticket()) as waiter:
            assert isinstance(waiter, Waiter)
            assert waiter.is_waiting
            waiter.deliver(7)
            waiter.deliver(8)
            waiter.fail(HandedOver("late"))
            assert await waiter.grant() == 7
            assert world.mailbox.get(waiter.holding.ticket.attempt) is waiter
        assert world.mailbox.get(waiter.holding.ticket.attempt) is None


async def test_a_failure_that_nobody_awaits_is_no_fault():
    async with World().running() as world:
        with world.mailbox.expect(_ticket()) as waiter:
            waiter.let_go(HandedOver("gone"))
            waiter.deliver(3)
            assert not waiter.is_waiting
            assert waiter.has_let_go


def _ticket():
    from extproc.admission.ports import Ticket

    return Ticket(request("r1"), 60, "a/1")
