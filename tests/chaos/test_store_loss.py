"""The shared Redis dies, forgets, falls silent or comes late, with real gateways in front of it."""

from __future__ import annotations

import asyncio

import pytest
from e2e.harness import (
    Sampler,
    System,
    chat,
    post,
    until_held,
    until_nothing_is_held,
    until_waiting,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]


async def healthy(system: System, session, *, is_up: bool, timeout_s: float = 10) -> None:
    """Wait until all servers say that the store is up, or away."""
    give_up_at = asyncio.get_running_loop().time() + timeout_s
    for gateway in system.described["gateways"]:
        while True:
            async with session.get(f"{gateway['admin']}/api/v1/status") as page:
                pools = (await page.json())["pools"]
            if all(pool["store_up"] is is_up for pool in pools):
                break
            assert asyncio.get_running_loop().time() < give_up_at
            await asyncio.sleep(0.05)


async def test_a_redis_that_restarts_empty_heals_within_a_heartbeat(demo, session, own_store) -> None:
    """What was held is held again, nobody is granted twice, and waiters keep their order."""
    system: System = demo("--redis", own_store.url, "--capacity-requests", "3")
    running = [
        asyncio.create_task(post(session, system.urls[n % 2], chat(500, ignore_eos=True), x_request_id="hog"))
        for n in range(3)
    ]
    await until_held(system, 3)
    waiters = []
    for n in range(6):
        waiters.append(
            asyncio.create_task(post(session, system.urls[n % 2], chat(1), x_request_id=f"waiter-{n}"))
        )
        await until_waiting(system, n + 1)
    own_store.stop()
    own_store.start()
    await until_held(system, 3, timeout_s=6)
    await until_waiting(system, 6, timeout_s=6)
    with Sampler(system) as sampler:
        answers = await asyncio.gather(*running, *waiters)
    assert [status for status, _, _ in answers] == [200] * 9
    assert max(sample.requests for sample in sampler.samples) <= 3
    served = [a["request_id"] for a in await system.arrivals() if a["request_id"] != "hog"]
    places = {request_id: place for place, request_id in enumerate(served)}
    for n in range(3):  # three go at once, so only those of different rounds have an order at the engine
        assert places[f"waiter-{n}"] < places[f"waiter-{n + 3}"]
    await until_nothing_is_held(system, 5)


async def test_a_silent_redis_costs_a_moment_and_then_each_gateway_keeps_its_share(
    demo, session, own_store
) -> None:
    system: System = demo("--redis", own_store.url, "--capacity-requests", "4", "--speed", "5")
    await post(session, system.urls[0], chat(1))
    own_store.pause()
    try:
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(post(session, system.urls[n % 2], chat(4)) for n in range(20)))
        took_s = asyncio.get_running_loop().time() - began
        assert [status for status, _, _ in answers] == [200] * 20
        assert took_s < 10  # not the 30 s of a queue that nobody serves
        await healthy(system, session, is_up=False)
    finally:
        own_store.resume()
    await healthy(system, session, is_up=True)
    await until_nothing_is_held(system, 15)
    assert (await post(session, system.urls[1], chat(1)))[0] == 200


async def test_a_redis_that_comes_late_is_taken_up(demo, session, own_store) -> None:
    own_store.stop()
    system: System = demo("--redis", own_store.url, "--speed", "5")
    assert (await post(session, system.urls[0], chat(4)))[0] == 200
    own_store.start()
    await healthy(system, session, is_up=True)
    with Sampler(system) as sampler:
        assert (await post(session, system.urls[1], chat(50)))[0] == 200
    assert max(sample.requests for sample in sampler.samples) == 1
    await until_nothing_is_held(system, 3)


async def test_fail_closed_refuses_with_a_reason_and_a_time(demo, session, own_store) -> None:
    closed = {"FOREBAY_ON_STORE_LOSS": "closed"}
    system: System = demo("--redis", own_store.url, "--speed", "5", environment=closed)
    own_store.stop()
    status, headers, _ = await post(session, system.urls[0], chat(4))
    assert (status, headers["x-forebay-reason"]) == (503, "store_unavailable")
    assert 1 <= int(headers["retry-after"]) <= 60
    own_store.start()
    await healthy(system, session, is_up=True)
    assert (await post(session, system.urls[0], chat(4)))[0] == 200
    await until_nothing_is_held(system, 3)
