"""A request leaves once, by one door; a later attempt takes over what an earlier one held."""

from __future__ import annotations

from extproc.admission.ports import Capacity, Granted, Queued, Refused, Standing
from extproc.domain.outcome import Refusal


async def nothing_is_left(replica) -> bool:
    state = await replica.queue.state()
    waiting = sum(backlog.requests + backlog.tokens for backlog in state.backlog.values())
    return (state.held_tokens, state.held_requests, waiting) == (0, 0, 0)


async def test_a_later_attempt_keeps_the_place_and_its_arrival(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await a.ask("moved")
    await a.ask("behind")
    cluster.clock.advance(500)
    assert await b.ask("moved") == Queued(500)
    assert b.holdings["moved"].rank == a.holdings["moved"].rank
    await a.leave("r0")
    await cluster.heard(b, ("moved", 500))
    assert a.grants == []


async def test_what_the_earlier_attempt_does_afterwards_changes_nothing(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await a.ask("moved")
    await b.ask("moved")
    assert await a.renew("moved") == [Standing.TAKEN_OVER]
    await a.leave("moved")
    assert await b.renew("moved") == [Standing.WAITING]
    await a.leave("r0")
    await cluster.heard(b, ("moved", 0))
    assert await b.renew("moved") == [Standing.HELD]


async def test_a_later_attempt_takes_over_a_lease(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await a.ask("moved")
    cluster.clock.advance(70)
    await a.leave("r0")
    cluster.clock.advance(30)
    assert await b.ask("moved") == Granted(70)
    await a.leave("moved")
    assert (await b.queue.state()).held_tokens == 100
    await b.leave("moved")
    assert await nothing_is_left(b)


async def test_a_later_attempt_books_what_the_first_one_booked(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("moved", 60)
    await b.ask("moved", 90)
    assert (await b.queue.state()).held_tokens == 60
    await b.leave("moved")
    assert await nothing_is_left(b)


async def test_the_same_attempt_may_ask_again(cluster):
    """A call whose answer was lost is repeated."""
    a, _ = await cluster.two_replicas(tokens=100)
    assert await a.ask("r0") == Granted(0)
    assert await a.ask("r0") == Granted(0)
    assert await a.ask("r1") == Queued(0)
    assert await a.ask("r1") == Queued(0)
    state = await a.queue.state()
    assert (state.held_requests, state.backlog[0].requests) == (1, 1)


async def test_leaving_gives_back_a_lease(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await a.leave("r0")
    assert await nothing_is_left(a)
    assert await b.ask("r1") == Granted(0)


async def test_leaving_gives_back_a_place_and_lets_the_next_one_through(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 700)
    await a.ask("large", 500)
    await b.ask("small", 300)
    await a.leave("large")
    await cluster.heard(b, ("small", 0))


async def test_leaving_twice_is_leaving_once(cluster):
    a, b = await cluster.two_replicas(tokens=200)
    await a.ask("r0")
    await b.ask("r1")
    ticket = a.holdings["r0"].ticket
    await a.leave("r0")
    await a.queue.leave([("r0", ticket.attempt)] * 3)
    assert (await b.queue.state()).held_tokens == 100


async def test_many_leave_in_one_call(cluster):
    a, b = await cluster.two_replicas(tokens=100_000)
    names = [f"r{i}" for i in range(1100)]
    for name in names:
        await a.ask(name, 50)
    await a.leave(*names)
    assert await nothing_is_left(b)


async def test_more_waiters_than_one_call_grants_are_all_granted(cluster):
    a, b = await cluster.two_replicas(tokens=10_000)
    await a.ask("large", 10_000)
    for i in range(200):
        await b.ask(f"r{i}", 50, max_requests=1000)
    await a.leave("large")
    await cluster.heard(b, *((f"r{i}", 0) for i in range(200)))


async def test_a_leave_that_overtakes_its_enqueue_wins(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.queue.leave([("r0", "a/r0")])
    assert await a.ask("r0") == Refused(Refusal.NOT_QUEUED)
    assert await nothing_is_left(a)
    assert await b.ask("r0") == Granted(0), "another attempt of the same request is free to go"


async def test_the_mark_of_a_departed_attempt_is_forgotten_in_time(cluster):
    a, _ = await cluster.two_replicas(tokens=100)
    await a.queue.leave([("r0", "a/r0")])
    for _ in range(31):
        cluster.clock.advance(2_000)
        await a.queue.sweep()
    assert await a.ask("r0") == Granted(0)


async def test_what_left_is_not_restored(cluster):
    a, _ = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    forgotten = a.holdings["r0"]
    await a.leave("r0")
    await a.queue.leave([("r0", forgotten.ticket.attempt)])
    assert await a.queue.renew([forgotten]) == [Standing.UNKNOWN]
    assert await nothing_is_left(a)


async def test_leaving_after_the_capacity_was_raised_counts_right(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    await a.queue.set_capacity(Capacity(200, None))
    await cluster.heard(b, ("r1", 0))
    await a.leave("r0")
    await b.leave("r1")
    assert await nothing_is_left(b)
