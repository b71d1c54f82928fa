"""Servers and engines that are lost, and what becomes of requests."""

from __future__ import annotations

import asyncio
from collections import Counter


async def _hold(gateway, wait_until, count, **do):
    """Send `count` requests of 2 KB and return once all of them are held."""
    held = [asyncio.create_task(gateway.post(do, size=2000)) for _ in range(count)]
    await wait_until(lambda: len(gateway.seen("request")) == count, timeout_s=10)
    return held


async def test_requests_held_by_a_killed_server_move_to_the_next_one(start_gateway, wait_until, tmp_path):
    go = tmp_path / "go"
    gateway = await start_gateway(servers=2)
    own, other = gateway.servers
    held = await _hold(gateway, wait_until, 20, until=str(go))
    await own.kill()
    await wait_until(lambda: len(gateway.seen("request", pid=other.pid)) == 20, timeout_s=10)
    go.touch()
    assert Counter([(await answer).status for answer in held]) == {200: 20}
    tickets = Counter(note["ticket"] for note in gateway.seen("request"))
    assert Counter(tickets.values()) == {2: 20}  # each was brought to both servers under one name


async def test_the_own_server_serves_again_once_it_is_back(start_gateway, wait_until):
    gateway = await start_gateway(servers=2)
    own, other = gateway.servers

    async def asked():
        await gateway.post()
        return gateway.seen("request")[-1]["pid"]

    async def asks_own():
        return await asked() == own.pid

    assert await asked() == own.pid
    await own.kill()
    assert await asked() == other.pid
    await own.start()
    await wait_until(asks_own, timeout_s=10)


async def test_a_single_server_may_restart_while_requests_are_held(start_gateway, wait_until, tmp_path):
    go = tmp_path / "go"
    gateway = await start_gateway()
    (server,) = gateway.servers
    held = await _hold(gateway, wait_until, 5, until=str(go))
    await server.kill()
    go.touch()
    await server.start()
    assert Counter([(await answer).status for answer in held]) == {200: 5}


async def test_without_any_server_nothing_passes(start_gateway):
    gateway = await start_gateway(servers=2, retries=2)
    for server in gateway.servers:
        await server.kill()
    answer = await gateway.post(size=2000)
    assert (answer.status, answer.told) == (503, {"x-forebay-reason": "store_unavailable"})
    assert gateway.engines[0].requests == []
    assert (await gateway.request("GET", "/v1/models")).status == 200


async def test_a_response_outlives_the_server_that_admitted_it(start_gateway, wait_until):
    gateway = await start_gateway()
    streaming = asyncio.create_task(gateway.post({"stream": True}))
    await wait_until(lambda: gateway.engines[0].requests)
    await gateway.servers[0].kill()
    gateway.engines[0].finish.set()
    answer = await streaming
    assert answer.status == 200
    assert answer.body.endswith(b"[DONE]\n\n")


async def test_a_dead_engine_costs_no_request(start_gateway):
    gateway = await start_gateway(engines=2)
    await gateway.engines[0].stop()
    answers = await asyncio.gather(*(gateway.post() for _ in range(20)))
    assert Counter(answer.status for answer in answers) == {200: 20}


async def test_without_any_engine_the_refusal_says_so(start_gateway):
    gateway = await start_gateway()
    await gateway.engines[0].stop()
    answer = await gateway.post()
    assert answer.status == 503
    assert answer.headers["x-forebay-reason"] == "no_backends"
    assert answer.headers["x-forebay-class"] == "interactive"
    assert answer.json["error"]["code"] == "no_backends"
