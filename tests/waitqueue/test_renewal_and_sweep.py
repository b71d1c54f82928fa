"""The living renew; what nobody renews is taken back; what the store forgot is put back."""

from __future__ import annotations

from extproc.admission.ports import ClassBacklog, Granted, Queued, Standing, Swept


async def pass_time(cluster, replica, total_ms: int, *, renewing: bool = False) -> Swept:
    """Let time pass as in a cluster that sweeps every second; `renewing`, `replica` renews all it holds."""
    leases = waiters = 0
    for _ in range(total_ms // 1000):
        cluster.clock.advance(1000)
        if renewing:
            await replica.renew()
        swept = await replica.queue.sweep()
        leases, waiters = leases + swept.leases, waiters + swept.waiters
    return Swept(leases, waiters)


async def test_a_renewal_says_where_each_holding_stands(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("held")
    await a.ask("waiting")
    await a.ask("moved")
    await b.ask("moved")
    assert await a.renew("held", "waiting", "moved") == [Standing.HELD, Standing.WAITING, Standing.TAKEN_OVER]


async def test_what_is_renewed_stays(cluster):
    a, _ = await cluster.two_replicas(tokens=100)
    await a.ask("held")
    await a.ask("waiting")
    assert await pass_time(cluster, a, 60_000, renewing=True) == Swept(0, 0)
    assert await a.renew("held", "waiting") == [Standing.HELD, Standing.WAITING]


async def test_many_holdings_are_renewed_in_order(cluster):
    a, b = await cluster.two_replicas(tokens=600)
    names = [f"r{i}" for i in range(1200)]
    for name in names:
        await a.ask(name, 1, max_requests=2000)
    await b.ask("r7")
    standings = await a.renew(*names)
    expected = [Standing.HELD] * 600 + [Standing.WAITING] * 600
    expected[7] = Standing.TAKEN_OVER
    assert standings == expected


async def test_a_renewal_announces_a_grant_that_was_not_heard_of(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await b.ask("r0")
    await a.ask("r1")
    await cluster.deafen(a)
    cluster.clock.advance(40)
    await b.leave("r0")
    a.listens = True
    assert a.grants == []
    cluster.clock.advance(10)
    assert await a.renew() == [Standing.HELD]
    await cluster.heard(a, ("r1", 40))
    assert await a.renew() == [Standing.HELD]
    assert a.grants == [], "what was heard of once is not announced again"


async def test_the_leases_of_a_dead_replica_return(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    assert await pass_time(cluster, b, 11_000, renewing=True) == Swept(0, 0)
    assert await pass_time(cluster, b, 1_000, renewing=True) == Swept(leases=1, waiters=0)
    await cluster.heard(b, ("r1", 12_000))


async def test_the_waiters_of_a_dead_replica_are_dropped_sooner(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await b.ask("r0")
    await a.ask("r1")
    await b.ask("r2")
    assert await pass_time(cluster, b, 5_000, renewing=True) == Swept(0, 0)
    assert await pass_time(cluster, b, 1_000, renewing=True) == Swept(leases=0, waiters=1)
    await b.leave("r0")
    await cluster.heard(b, ("r2", 6_000))


async def test_a_sweep_takes_back_all_that_expired_however_many(cluster):
    a, b = await cluster.two_replicas(tokens=500)
    for i in range(1000):
        await a.ask(f"r{i}", 1, max_requests=1000)
    assert await pass_time(cluster, b, 12_000) == Swept(leases=500, waiters=500)
    state = await b.queue.state()
    assert (state.held_requests, state.held_tokens) == (0, 0)


async def test_a_place_can_be_taken_over_until_it_expires(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await b.ask("r0")
    await a.ask("moved")
    await pass_time(cluster, b, 5_000)
    assert await b.ask("moved") == Queued(5_000)
    assert await pass_time(cluster, b, 5_000) == Swept(0, 0)


async def test_after_a_gap_in_the_sweeps_owners_get_time_to_renew(cluster):
    """The store was paused, or all were cut off from it: expiry does not mean death."""
    a, b = await cluster.two_replicas(tokens=100)
    await b.queue.sweep()
    await a.ask("held")
    await a.ask("waiting")
    cluster.clock.advance(60_000)
    assert await b.queue.sweep() == Swept(0, 0)
    cluster.clock.advance(1_000)
    assert await a.renew("held", "waiting") == [Standing.HELD, Standing.WAITING]
    assert await pass_time(cluster, b, 5_000) == Swept(0, 0)


async def test_the_grace_after_a_gap_ends(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await b.queue.sweep()
    await a.ask("held")
    await a.ask("waiting")
    cluster.clock.advance(60_000)
    await b.queue.sweep()
    assert await pass_time(cluster, b, 5_000) == Swept(0, 0)
    assert await pass_time(cluster, b, 1_000) == Swept(leases=1, waiters=1)


async def test_what_the_store_forgot_is_put_back_at_its_old_place(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("held")
    await a.ask("early")
    await b.ask("late")
    await pass_time(cluster, b, 12_000, renewing=True)  # a was cut off, and all it held taken back
    await cluster.heard(b, ("late", 12_000))
    assert await a.renew("early") == [Standing.UNKNOWN]
    assert await b.ask("newcomer") == Queued(0)
    assert a.holdings["early"].rank < b.holdings["newcomer"].rank
    await b.leave("late")
    await cluster.heard(a, ("early", 12_000))


async def test_a_lease_is_put_back_even_beyond_the_capacity(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("held")
    await b.ask("next")
    await pass_time(cluster, b, 12_000, renewing=True)
    await cluster.heard(b, ("next", 12_000))
    assert await a.renew("held") == [Standing.UNKNOWN]
    assert await a.renew("held") == [Standing.HELD]
    assert (await a.queue.state()).held_tokens == 200
    await b.leave("next")
    assert await b.ask("more") == Queued(0), "no grant before the excess is gone"
    await a.leave("held")
    await cluster.heard(b, ("more", 0))


async def test_an_owner_that_holds_what_the_store_lets_wait_is_believed(cluster):
    """It was granted by the twin in memory while the store was away."""
    a, b = await cluster.two_replicas(tokens=100)
    await b.ask("r0")
    await a.ask("r1")
    a.holdings["r1"].is_granted = True
    assert await a.renew() == [Standing.HELD]
    state = await a.queue.state()
    assert (state.held_requests, state.held_tokens) == (2, 200)
    assert sum(backlog.requests for backlog in state.backlog.values()) == 0


async def test_of_two_forgotten_attempts_the_later_one_is_put_back(cluster):
    """Envoy brought the request again to the same replica, which has not heard yet that this ended the first."""
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0", attempt="first")
    first = a.holdings["r0"]
    await a.ask("r0", attempt="second")
    second = a.holdings["r0"]
    await pass_time(cluster, b, 12_000)
    assert await a.queue.renew([first, second]) == [Standing.UNKNOWN, Standing.UNKNOWN]
    assert await a.queue.renew([first, second]) == [Standing.TAKEN_OVER, Standing.HELD]


async def test_a_place_that_is_put_back_is_in_the_class_it_was_given_in(cluster):
    """A later attempt may come in another class; the rank was fixed by the first."""
    a, b = await cluster.two_replicas(tokens=100)
    await b.ask("hog")
    await a.ask("r0", class_rank=10, attempt="first")
    await a.ask("r0", class_rank=0, attempt="second")
    await pass_time(cluster, b, 12_000, renewing=True)
    assert await a.renew("r0") == [Standing.UNKNOWN]
    backlog = (await a.queue.state()).backlog
    assert (backlog[10].requests, backlog.get(0)) in ((1, None), (1, ClassBacklog(0, 0)))


async def test_replicas_are_counted_while_they_renew(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.renew()
    await b.renew()
    assert (await a.queue.state()).replicas == 2
    await pass_time(cluster, a, 7_000, renewing=True)
    assert (await a.queue.state()).replicas == 1


async def test_a_replica_that_was_dropped_may_ask_again(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await pass_time(cluster, b, 12_000)
    assert await a.ask("r0", attempt="second") == Granted(0)
