"""The store forgets, restarts, loses a key or falls silent; what the replicas hold stays right."""

from __future__ import annotations

import asyncio

import pytest

from extproc.admission.ports import Capacity, Granted, Queued, Standing
from extproc.domain.errors import QueueUnavailable
from extproc.waitqueue import RedisQueue
from extproc.waitqueue.client import connect


async def test_a_loss_is_noticed_by_the_next_call_and_told_once(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await b.queue.sweep()
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await a.queue.sweep()
    await a.queue.sweep()
    assert (a.losses, b.losses) == (1, 0)
    await b.queue.sweep()
    assert (a.losses, b.losses) == (1, 1)


async def test_reading_an_empty_store_is_no_loss(redis_cluster):
    a = await redis_cluster.replica("a")
    for _ in range(3):
        redis_cluster.clock.advance(1)
        await a.queue.state()
    await a.queue.sweep()
    assert a.losses == 0


async def test_after_a_loss_nothing_is_granted_until_owners_have_had_time_to_speak(
    redis_cluster, redis_client
):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("held")
    await b.renew()
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await b.queue.set_capacity(Capacity(100, None))
    assert await b.ask("new") == Queued(0)
    redis_cluster.clock.advance(1_000)
    assert await a.renew() == [Standing.UNKNOWN]
    redis_cluster.clock.advance(3_000)
    await b.renew()
    await b.queue.sweep()
    assert await b.renew() == [Standing.WAITING], "the lease was put back, so there is no room"
    await a.leave("held")
    await redis_cluster.heard(b, ("new", 4_000))


async def test_the_freeze_ends_where_nobody_holds_anything(redis_cluster, redis_client):
    a, _ = await redis_cluster.two_replicas(tokens=100)
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await a.renew()
    assert await a.ask("r0") == Queued(0)
    redis_cluster.clock.advance(3_000)
    await a.queue.sweep()
    await redis_cluster.heard(a, ("r0", 3_000))


async def test_one_that_knew_the_store_before_freezes_it_even_if_a_newcomer_woke_it(
    redis_cluster, redis_client
):
    a, _ = await redis_cluster.two_replicas(tokens=100)
    await a.ask("held")
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    newcomer = await redis_cluster.replica("c")
    await newcomer.queue.set_capacity(Capacity(100, None))
    await a.queue.state()  # any call of one that knows better, before the first grant
    await a.queue.sweep()
    assert await newcomer.ask("r1") == Queued(0)


async def test_one_that_hears_of_a_loss_long_after_freezes_nothing(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.renew()
    await b.renew()
    await redis_client.flushall()
    for _ in range(4):
        redis_cluster.clock.advance(1_000)
        await a.renew()
    await b.queue.sweep()
    assert b.losses == 1
    assert await a.ask("r0") == Granted(0)


async def test_a_new_store_is_not_frozen(redis_cluster):
    a, _ = await redis_cluster.two_replicas(tokens=100)
    assert await a.ask("r0") == Granted(0)


async def test_waiters_keep_their_order_through_a_loss(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("r0")
    for replica, name, rank in ((a, "batch", 10), (b, "first", 0), (a, "second", 0)):
        redis_cluster.clock.advance(1)
        await replica.ask(name, class_rank=rank)
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await a.renew()
    await b.renew()
    redis_cluster.clock.advance(3_000)
    await a.leave("r0")
    await redis_cluster.heard(b, ("first", 3_002))
    await b.leave("first")
    await redis_cluster.heard(a, ("second", 3_001))
    await a.leave("second")
    await redis_cluster.heard(a, ("batch", 3_003))


async def test_over_capacity_after_a_loss_comes_only_from_what_was_held(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=200)
    await a.ask("r0")
    await b.ask("r1")
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await a.queue.set_capacity(Capacity(100, None))
    await a.renew()
    await b.renew()
    redis_cluster.clock.advance(3_000)
    await a.queue.sweep()
    assert (await a.queue.state()).held_tokens == 200
    assert await a.ask("r2") == Queued(0)


async def test_the_capacity_is_told_again_by_who_set_it(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100, requests=7)
    await redis_client.flushall()
    redis_cluster.clock.advance(1)
    await b.renew()
    assert (await b.queue.state()).capacity is None
    await a.renew()
    assert (await b.queue.state()).capacity == Capacity(100, 7)


async def test_a_capacity_that_could_not_be_told_is_told_by_the_next_renewal(own_store, no_task_left):
    async with connect(own_store.url, timeout_s=0.1, max_connections=4) as client:
        queue = RedisQueue(client, "p", "a", on_grant=print, timeout_s=0.1)
        await queue.set_capacity(Capacity(100, None))
        own_store.pause()
        with pytest.raises(QueueUnavailable):
            await queue.set_capacity(Capacity(50, None))
        own_store.resume()
        await queue.renew([])
        assert (await queue.state()).capacity == Capacity(50, None)


KEYS = ["waiting", "leases", "heartbeats", "reservations", "requests", "totals", "capacity"]


@pytest.mark.parametrize("key", KEYS)
async def test_a_store_that_lost_one_key_is_made_right_by_the_owners(redis_cluster, redis_client, key):
    """Evicted, or deleted by hand."""
    a, b = await redis_cluster.two_replicas(tokens=200)
    for replica, name in ((a, "r0"), (b, "r1"), (a, "r2"), (b, "r3")):
        await replica.ask(name)
    await redis_client.delete(f"{{forebay:v1:llama-70b}}:{key}")
    for _ in range(8):
        redis_cluster.clock.advance(1_000)
        for replica in (a, b):
            await replica.renew()
            await replica.queue.sweep()
    state = await a.queue.state()
    assert (state.held_tokens, state.held_requests, state.backlog[0].requests) == (200, 2, 2)
    assert await a.renew() == [Standing.HELD, Standing.WAITING]
    for name, replica in (("r0", a), ("r1", b)):
        await replica.leave(name)
    await redis_cluster.heard(a, ("r2", 8_000))
    await redis_cluster.heard(b, ("r3", 8_000))


async def test_what_was_taken_over_between_renewal_and_restore_stays_taken_over(redis_cluster):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("r0", 40)
    await b.ask("r0")
    await a.queue._restore([a.holdings["r0"]])
    assert await b.renew() == [Standing.HELD]
    state = await b.queue.state()
    assert (state.held_requests, state.held_tokens) == (1, 40)


async def test_what_leaves_during_a_renewal_is_not_put_back(redis_cluster, wait_until):
    """The renewal was asked for before, and the store rightly knows nothing of it any more."""
    a, _ = await redis_cluster.two_replicas(tokens=100_000)
    for n in range(1500):  # three calls each, from both ends: the last ones leave before they are renewed
        await a.ask(f"r{n}", 1)
    names = list(a.holdings)
    renewal = asyncio.create_task(a.renew())
    await wait_until(lambda: a.queue._leavers)
    await a.leave(*reversed(names))
    await renewal
    state = await a.queue.state()
    assert (state.held_requests, state.held_tokens) == (0, 0)


@pytest.mark.parametrize("verb", ["enqueue", "leave", "renew", "sweep", "set_capacity", "state"])
@pytest.mark.parametrize("fate", ["silent", "gone"])
async def test_a_store_that_does_not_answer_is_unavailable_within_the_budget(
    own_store, no_task_left, redis_cluster, verb, fate
):
    a = await redis_cluster.replica("a")  # for a holding at hand
    await a.ask("r0")
    async with connect(own_store.url, timeout_s=0.1, max_connections=4) as client:
        queue = RedisQueue(client, "p", "a", on_grant=print, timeout_s=0.1)
        await queue.state()
        own_store.pause() if fate == "silent" else own_store.stop()
        calls = {
            "enqueue": lambda: queue.enqueue(a.holdings["r0"], max_requests=10),
            "leave": lambda: queue.leave([("r0", "a/r0")]),
            "renew": lambda: queue.renew([]),
            "sweep": queue.sweep,
            "set_capacity": lambda: queue.set_capacity(Capacity(1, 1)),
            "state": queue.state,
        }
        async with asyncio.timeout(5):
            with pytest.raises(QueueUnavailable, match=verb):
                await calls[verb]()


async def test_a_restarted_server_costs_no_failed_call(own_store, no_task_left):
    async with connect(own_store.url, timeout_s=1.0, max_connections=4) as client:
        losses = []
        queue = RedisQueue(client, "p", "a", on_grant=print, on_loss=lambda: losses.append(1), timeout_s=1.0)
        await queue.sweep()
        own_store.stop()
        own_store.start()
        await queue.sweep()
        assert losses == [1]


async def test_a_store_that_may_not_be_written_is_unavailable(own_store, no_task_left):
    async with connect(own_store.url, timeout_s=1.0, max_connections=4) as client:
        queue = RedisQueue(client, "p", "a", on_grant=print, timeout_s=1.0)
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(QueueUnavailable, match="sweep: "):
            await queue.sweep()
        await client.execute_command("REPLICAOF", "NO", "ONE")
        await queue.sweep()


async def test_flushed_scripts_are_loaded_again(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await redis_client.script_flush()
    assert await a.ask("r0") == Granted(0)
    await redis_client.script_flush()
    assert await asyncio.gather(*(b.ask(f"w{n}") for n in range(5))) == [Queued(0)] * 5
    await redis_client.script_flush()
    await a.leave("r0")
    await redis_cluster.heard(b, ("w0", 0))
