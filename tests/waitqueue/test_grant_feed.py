"""Grants that other replicas' calls make are heard, through every loss of the connection."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from extproc.admission.ports import Standing
from extproc.waitqueue import GrantFeed
from extproc.waitqueue.client import connect_feed


async def run_feed(url, listeners, on_reconnect):
    """Run a feed until its first subscription; returns its task and client."""
    client = connect_feed(url, timeout_s=1.0)
    task = asyncio.create_task(GrantFeed(client, "a", listeners=listeners, on_reconnect=on_reconnect).run())
    return task, client


async def stop_feed(task, client):
    task.cancel()
    await asyncio.wait([task])
    await client.aclose()


async def test_each_pool_and_replica_hears_its_own_grants_only(redis_client, store_server, wait_until):
    heard = {"p1": [], "p2": []}
    listeners = {pool: lambda *grant, notes=notes: notes.append(grant) for pool, notes in heard.items()}
    subscribed = asyncio.Event()
    task, client = await run_feed(store_server.url, listeners, subscribed.set)
    await asyncio.wait_for(subscribed.wait(), 5)
    await redis_client.publish("{forebay:v1:p1}:waiting:b", "1 b/1 for b")
    await redis_client.publish("{forebay:v1:p2}:waiting:a", "7 a/1 with spaces  in it")
    await redis_client.publish("{forebay:v1:p1}:waiting:a", "8 a/2 ")
    await wait_until(lambda: heard["p1"] and heard["p2"])
    assert heard == {"p1": [("", "a/2", 8)], "p2": [("with spaces  in it", "a/1", 7)]}
    await stop_feed(task, client)


async def test_a_killed_connection_is_made_anew_and_reported_as_such(redis_cluster, redis_client, wait_until):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    await b.ask("r2")
    confirmed = await redis_client.pubsub_numsub("{forebay:v1:llama-70b}:waiting:b")
    assert confirmed[0][1] == 1
    with capture_logs() as logs:
        assert await redis_client.client_kill_filter(_type="pubsub") >= 1
        await wait_until(lambda: [log["event"] for log in logs].count("grant feed back") >= 2)
    assert [log["event"] for log in logs].count("grant feed lost") == 2, "once for each of the two feeds"
    await a.leave("r0")
    await redis_cluster.heard(b, ("r1", 0))


async def test_a_renewal_is_asked_for_once_the_new_subscription_stands(
    store_server, redis_client, wait_until
):
    confirmations = []
    task, client = await run_feed(store_server.url, {"p": print}, lambda: confirmations.append(1))
    await wait_until(lambda: len(confirmations) == 1)
    await redis_client.client_kill_filter(_type="pubsub")
    await wait_until(lambda: len(confirmations) == 2)
    await stop_feed(task, client)


async def test_a_feed_waits_for_a_store_that_comes_later(own_store, wait_until, no_task_left):
    own_store.stop()
    confirmations = []
    with capture_logs() as logs:
        task, client = await run_feed(own_store.url, {"p": print}, lambda: confirmations.append(1))
        await wait_until(lambda: logs)
        own_store.start()
        await wait_until(lambda: confirmations)
        await wait_until(lambda: len(logs) == 2)
    assert [log["event"] for log in logs] == ["grant feed lost", "grant feed back"], "changes, not attempts"
    await stop_feed(task, client)


async def test_a_grant_made_while_the_feed_was_down_is_found_by_the_renewal(redis_cluster):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    await redis_cluster.deafen(b)
    await a.leave("r0")
    await redis_cluster.feed(b)
    assert b.grants == []
    assert await b.renew() == [Standing.HELD]
    assert b.grants == [("r1", 0)]
