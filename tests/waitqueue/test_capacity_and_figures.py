"""Capacity that changes, and the figures that everyone reads."""

from __future__ import annotations

import math

import pytest

from extproc.admission.ports import Capacity, ClassBacklog, Granted, Queued


async def test_a_raised_capacity_lets_waiters_through(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    await b.ask("r2")
    await a.queue.set_capacity(Capacity(200, None))
    await cluster.heard(b, ("r1", 0))


async def test_a_cut_capacity_takes_nothing_back_but_grants_nothing(cluster):
    a, b = await cluster.two_replicas(tokens=300)
    for name in ("r0", "r1", "r2"):
        await a.ask(name)
    await b.ask("r3")
    await a.queue.set_capacity(Capacity(150, None))
    assert (await a.queue.state()).held_tokens == 300
    await a.leave("r0", "r1")
    assert (await a.queue.state()).held_requests == 1
    await a.leave("r2")
    await cluster.heard(b, ("r3", 0))


async def test_a_waiter_larger_than_a_cut_capacity_goes_alone(cluster):
    """The progress rule: or it would block the queue for ever."""
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 500)
    await b.ask("large", 800)
    await b.ask("small", 10)
    await a.queue.set_capacity(Capacity(400, None))
    await a.leave("r0")
    await cluster.heard(b, ("large", 0))
    assert (await a.queue.state()).held_requests == 1
    await b.leave("large")
    await cluster.heard(b, ("small", 0))


async def test_the_state_is_the_same_from_every_replica(cluster):
    a, b = await cluster.two_replicas(tokens=1000, requests=8)
    await a.ask("r0", 700)
    await b.ask("r1", 500)
    await b.ask("r2", 20, class_rank=10)
    await a.ask("r3", 30, class_rank=10)
    assert await a.queue.state() == await b.queue.state()
    state = await a.queue.state()
    assert (state.held_tokens, state.held_requests) == (700, 1)
    assert state.capacity == Capacity(1000, 8)
    assert state.backlog[0] == ClassBacklog(1, 500)
    assert state.backlog[10] == ClassBacklog(2, 50)


async def test_an_unknown_capacity_is_none(cluster):
    a = await cluster.replica("a")
    state = await a.queue.state()
    assert state.capacity is None
    assert state.drain_tokens_per_s is None


async def test_a_limit_that_is_not_set_is_none(cluster):
    a, _ = await cluster.two_replicas(tokens=1000)
    assert (await a.queue.state()).capacity == Capacity(1000, None)
    await a.queue.set_capacity(Capacity(None, 3))
    assert (await a.queue.state()).capacity == Capacity(None, 3)


async def test_held_token_seconds_are_the_integral_of_held_tokens(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    cluster.clock.advance(5_000)
    await a.ask("r0", 60)
    cluster.clock.advance(1_500)  # 60 for 1.5 s
    await b.ask("r1", 40)
    cluster.clock.advance(250)  # 100 for 0.25 s
    await a.leave("r0")
    cluster.clock.advance(2_001)  # 40 for 2.001 s
    await b.ask("r2", 61)
    cluster.clock.advance(1_000)  # 40 for 1 s
    await b.leave("r1")
    cluster.clock.advance(100)  # 61 for 0.1 s
    expected = 60 * 1.5 + 100 * 0.25 + 40 * 2.001 + 40 * 1 + 61 * 0.1
    assert (await a.queue.state()).held_token_s == pytest.approx(expected, abs=1e-3)


async def test_reading_the_state_changes_nothing(cluster):
    a, _ = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    for _ in range(3):
        cluster.clock.advance(1_000)
        await a.queue.state()
    assert (await a.queue.state()).held_token_s == pytest.approx(300)


async def test_the_drain_rate_is_what_comes_back_while_somebody_waits(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    cluster.clock.advance(60_000)  # nobody waits: idle time says nothing about how fast tokens come back
    for i in range(1, 40):
        await b.ask(f"r{i}")
    holder = a
    for i in range(30):
        cluster.clock.advance(250)  # 100 tokens each 250 ms
        await holder.leave(f"r{i}")
        holder = b
    assert (await b.queue.state()).drain_tokens_per_s == pytest.approx(400, rel=0.05)


async def test_an_old_drain_rate_fades(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    cluster.clock.advance(1_000)
    await a.leave("r0")
    await b.ask("r2")
    cluster.clock.advance(10_000)
    await b.leave("r1")
    # the first 100 tokens have faded by exp(-10 s / 10 s); 11 s that fade as they pass weigh 10 (1 - exp(-1.1)) s
    expected = (100 * math.exp(-1) + 100) / (10 * (1 - math.exp(-1.1)))
    assert (await b.queue.state()).drain_tokens_per_s == pytest.approx(expected, rel=1e-3)


async def test_a_pool_without_waiters_has_no_drain_rate(cluster):
    a, _ = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    cluster.clock.advance(10_000)
    await a.leave("r0")
    assert (await a.queue.state()).drain_tokens_per_s is None


async def test_what_comes_back_while_nobody_waits_says_nothing_of_the_drain(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    for n in range(20):
        await a.ask(f"r{n}")
        cluster.clock.advance(10)
        await a.leave(f"r{n}")
    await a.ask("holder")
    await b.ask("waiter")
    cluster.clock.advance(2_000)
    assert (await a.queue.state()).drain_tokens_per_s is None


async def test_a_capacity_of_nothing_lets_one_request_at_a_time_through(cluster):
    a, b = await cluster.two_replicas(requests=0)
    assert await a.ask("r0") == Granted(0)
    assert await b.ask("r1") == Queued(0)
