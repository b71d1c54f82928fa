"""Who is granted, who waits and who is refused."""

from __future__ import annotations

from extproc.admission.ports import Capacity, Granted, Queued, Refused
from extproc.domain.outcome import Refusal


async def test_a_request_that_fits_is_granted_at_once(cluster):
    a, _ = await cluster.two_replicas(tokens=1000)
    assert await a.ask("r1", 1000) == Granted(0)
    assert (await a.queue.state()).held_tokens == 1000


async def test_nothing_is_granted_before_the_capacity_is_known(cluster):
    a = await cluster.replica("a")
    assert await a.ask("r1") == Queued(0)
    await a.queue.set_capacity(Capacity(1000, None))
    await cluster.heard(a, ("r1", 0))


async def test_tokens_held_by_one_replica_leave_no_room_for_another(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    assert await a.ask("r1", 600) == Granted(0)
    assert await b.ask("r2", 401) == Queued(0)
    assert (await b.queue.state()).held_tokens == 600


async def test_the_last_token_can_be_held(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r1", 600)
    assert await b.ask("r2", 400) == Granted(0)


async def test_requests_are_counted_where_the_capacity_counts_requests(cluster):
    a, b = await cluster.two_replicas(requests=2)
    assert await a.ask("r1", 10**9) == Granted(0)
    assert await b.ask("r2", 10**9) == Granted(0)
    assert await b.ask("r3", 1) == Queued(0)


async def test_both_limits_hold_where_both_are_set(cluster):
    a, b = await cluster.two_replicas(tokens=1000, requests=2)
    await a.ask("r1", 900)
    assert await b.ask("r2", 200) == Queued(0)
    await a.leave("r1")
    await cluster.heard(b, ("r2", 0))
    assert await a.ask("r3", 100) == Granted(0)
    assert await a.ask("r4", 100) == Queued(0)


async def test_arrival_decides_within_a_class_whatever_the_replica(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    for replica, name in ((b, "r1"), (a, "r2"), (b, "r3")):
        cluster.clock.advance(10)
        assert await replica.ask(name) == Queued(0)
    await a.leave("r0")
    await cluster.heard(b, ("r1", 20))
    await b.leave("r1")
    await cluster.heard(a, ("r2", 10))
    await a.leave("r2")
    await cluster.heard(b, ("r3", 0))


async def test_arrivals_in_one_millisecond_keep_their_order(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("z0")
    await b.ask("y1")
    await b.ask("x2")
    await a.leave("z0")
    await cluster.heard(b, ("y1", 0))


async def test_class_decides_before_arrival(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("batch", class_rank=10)
    await a.ask("interactive", class_rank=0)
    await a.leave("r0")
    await cluster.heard(a, ("interactive", 0))
    assert b.grants == []


async def test_a_newcomer_of_a_better_class_passes_waiting_batch_if_it_fits(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 700)
    assert await b.ask("batch", 500, class_rank=10) == Queued(0)
    assert await a.ask("interactive", 300, class_rank=0) == Granted(0)


async def test_the_head_is_never_overtaken_by_one_that_would_fit(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 700)
    assert await b.ask("large", 500) == Queued(0)
    assert await a.ask("small", 100) == Queued(0)
    assert await a.ask("batch", 100, class_rank=10) == Queued(0)


async def test_room_gathers_until_the_head_fits_and_then_all_go_that_fit(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 400)
    await a.ask("r1", 300)
    await b.ask("large", 800)
    await b.ask("small", 200)
    await a.leave("r1")
    assert (await a.queue.state()).held_requests == 1
    await a.leave("r0")
    await cluster.heard(b, ("large", 0), ("small", 0))


async def test_a_waiter_says_how_long_it_waited(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    cluster.clock.advance(1234)
    await a.leave("r0")
    await cluster.heard(b, ("r1", 1234))


async def test_a_full_queue_refuses_with_what_is_ahead(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 900)
    assert await a.ask("r1", 300, max_requests=2) == Queued(0)
    assert await b.ask("r2", 200, max_requests=2, class_rank=10) == Queued(0)
    # held 900 + waiting 500 + mine 50 - capacity 1000
    refused = await b.ask("r3", 50, max_requests=2, class_rank=10)
    assert refused == Refused(Refusal.QUEUE_FULL, ahead_tokens=450, drain_tokens_per_s=None)


async def test_what_is_behind_is_not_counted_as_ahead(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    await a.ask("r0", 900)
    await b.ask("batch", 500, class_rank=10)
    refused = await a.ask("r1", 200, class_rank=0, max_wait_s=0)
    assert refused == Refused(Refusal.NOT_QUEUED, ahead_tokens=100)


async def test_a_request_that_will_not_wait_is_refused_rather_than_queued(cluster):
    a, b = await cluster.two_replicas(tokens=1000)
    assert await a.ask("r0", 1000, max_wait_s=0) == Granted(0)
    refused = await b.ask("r1", 200, max_wait_s=0)
    assert refused == Refused(Refusal.NOT_QUEUED, ahead_tokens=200)
    state = await b.queue.state()
    assert sum(backlog.requests for backlog in state.backlog.values()) == 0


async def test_where_requests_are_scarce_what_is_ahead_is_told_in_their_mean_tokens(cluster):
    a, b = await cluster.two_replicas(requests=2)
    await a.ask("r0", 100)
    await a.ask("r1", 300)
    await b.ask("r2", 5)
    refused = await b.ask("r3", 5, max_wait_s=0)
    assert refused == Refused(Refusal.NOT_QUEUED, ahead_tokens=400)  # two must leave, at 200 each


async def test_more_tokens_than_the_pool_may_hold_never_fit(cluster):
    a, _ = await cluster.two_replicas(tokens=1000)
    assert await a.ask("r0", 1001) == Refused(Refusal.NEVER_FITS)


async def test_ids_and_tenants_may_hold_any_text(cluster):
    a, b = await cluster.two_replicas(tokens=100)
    strange = ["a b", "", "\N{SNOWMAN} {x}:y\r\n*3", "nul\0nul", "'\"\\"]
    await a.ask("first", 100, tenant="\N{DROMEDARY CAMEL}\0 \U0010ffff")
    for name in strange:
        assert await b.ask(name, 100, tenant=f"tenant {name}", attempt=f"a-{strange.index(name)}") == Queued(
            0
        )
    await a.leave("first")
    for name in strange:
        await cluster.heard(b, (name, 0))
        await b.leave(name)
    assert (await a.queue.state()).held_requests == 0
