"""Every way something can go away while requests wait or run: the client gets the right answer, nothing stays held."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter

import aiohttp
import pytest
from e2e.harness import (
    System,
    chat,
    post,
    until_held,
    until_nothing_is_held,
    until_waiting,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

RECLAIM_S = 15  # the longest a dead server's leases may stay
TWO_KB = "word " * 400


async def hold_the_room(system: System, session, seconds: float = 3.0) -> asyncio.Task:
    """Fill a pool for one request, through the second gateway, for a while (one token takes about 20 ms)."""
    tokens = int(seconds * 50)
    task = asyncio.create_task(
        post(session, system.urls[1], chat(tokens, ignore_eos=True), x_request_id="hog")
    )
    await until_held(system)
    return task


async def queue(system: System, session, gateway: int, number: int, body: dict) -> list[asyncio.Task]:
    """Send requests one after the other, each once the one before waits."""
    tasks = []
    already = system.held().waiting
    for n in range(number):
        tasks.append(
            asyncio.create_task(post(session, system.urls[gateway], body, x_request_id=f"waiter-{n:02}"))
        )
        await until_waiting(system, already + n + 1)
    return tasks


async def test_waiters_of_a_killed_server_are_served_in_order_by_the_other(demo, session) -> None:
    system: System = demo("--capacity-requests", "1")
    hog = await hold_the_room(system, session, 4)
    waiters = await queue(system, session, 0, 20, chat(1, text=TWO_KB))
    system.kill("extproc", 0)
    answers = await asyncio.gather(hog, *waiters)
    assert [status for status, _, _ in answers] == [200] * 21
    served = [arrival["request_id"] for arrival in await system.arrivals()]
    assert served == ["hog", *(f"waiter-{n:02}" for n in range(20))]
    await until_nothing_is_held(system, RECLAIM_S)


async def test_a_killed_servers_leases_come_back_and_its_responses_run_on(demo, session) -> None:
    system: System = demo("--capacity-requests", "4")
    running = [
        asyncio.create_task(post(session, system.urls[0], chat(150, stream=True, ignore_eos=True)))
        for _ in range(4)
    ]
    await until_held(system, 4)
    waiters = await queue(system, session, 0, 4, chat(1))
    system.kill("extproc", 0)
    answers = await asyncio.gather(*running, *waiters)
    assert [status for status, _, _ in answers] == [200] * 8
    assert all(body.endswith(b"[DONE]\n\n") for _, _, body in answers[:4])  # no response broke
    await until_nothing_is_held(system, RECLAIM_S)


async def test_a_server_that_was_killed_alone_and_restarted_serves_again(demo, session) -> None:
    """One gateway: requests that come while its server is away get 503 in the client's dialect."""
    system: System = demo("--gateways", "1", "--speed", "10")
    system.kill("extproc", 0)
    status, headers, body = await post(session, system.urls[0], chat(4))
    assert status == 503
    assert headers["x-forebay-reason"] == "store_unavailable"
    assert b'"error"' in body


async def test_a_killed_envoy_gives_back_what_its_requests_held(demo, session) -> None:
    system: System = demo("--capacity-requests", "2")
    tasks = [
        asyncio.create_task(post(session, system.urls[0], chat(400, stream=True, ignore_eos=True)))
        for _ in range(2)
    ]
    await until_held(system, 2)
    tasks += await queue(system, session, 0, 3, chat(4))
    system.kill("envoy", 0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, aiohttp.ClientError) for result in results)
    await until_nothing_is_held(system, 2)
    status, _, _ = await post(session, system.urls[1], chat(4))
    assert status == 200


@pytest.mark.parametrize("is_streaming", [True, False])
async def test_a_client_that_goes_away_while_it_is_answered_leaves_nothing(
    shared: System, session, *, is_streaming: bool
) -> None:
    task = asyncio.create_task(
        post(session, shared.urls[0], chat(3000, stream=is_streaming, ignore_eos=True))
    )
    await until_held(shared)
    task.cancel()
    await until_nothing_is_held(shared, 2)


async def test_a_client_process_that_is_killed_while_it_waits_leaves_nothing(demo, session) -> None:
    system: System = demo("--capacity-requests", "1")
    hog = await hold_the_room(system, session, 3)
    script = (
        "import sys, urllib.request as r; "
        "r.urlopen(r.Request(sys.argv[1] + '/v1/chat/completions', sys.argv[2].encode()))"
    )
    body = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    client = subprocess.Popen([sys.executable, "-c", script, system.urls[0], body])  # noqa: ASYNC220
    await until_waiting(system, 1)
    client.kill()
    client.wait()
    await until_waiting(system, 0, timeout_s=2)
    assert (await hog)[0] == 200
    await until_nothing_is_held(system, 2)


async def test_an_upstream_that_resets_in_the_middle_of_a_stream_gives_back(shared: System, session) -> None:
    with pytest.raises(aiohttp.ClientError):
        await post(session, shared.urls[0], chat(50, stream=True), x_sim_fault="reset-after-3")
    await until_nothing_is_held(shared, 2)


async def test_an_engine_that_answers_503_gives_back(shared: System, session) -> None:
    status, headers, _ = await post(session, shared.urls[0], chat(5), x_sim_fault="status-503")
    assert (status, headers["x-forebay-class"]) == (503, "interactive")
    await until_nothing_is_held(shared, 2)


async def test_the_access_log_tells_how_responses_ended(demo, session) -> None:
    system: System = demo("--speed", "10")
    await post(session, system.urls[0], chat(4))
    with pytest.raises(aiohttp.ClientError):
        await post(session, system.urls[0], chat(50, stream=True), x_sim_fault="reset-after-3")
    task = asyncio.create_task(post(session, system.urls[0], chat(3000, stream=True, ignore_eos=True)))
    await until_held(system)
    await asyncio.sleep(0.3)
    task.cancel()
    await post(session, system.urls[0], chat(4), x_sim_fault="status-503")
    wanted = {"complete": 1, "upstream_reset": 1, "client_gone": 1, "upstream_error": 1}
    seen: dict[str, float] = {}
    for _ in range(50):
        seen = await endings(system, session)
        if seen == wanted:
            break
        await asyncio.sleep(0.1)
    assert seen == wanted


async def endings(system: System, session) -> dict[str, float]:
    """Return responses by their end, over all servers: the log may reach any of them."""
    seen: dict[str, float] = {}
    for gateway in system.described["gateways"]:
        async with session.get(f"{gateway['admin']}/metrics") as page:
            for line in (await page.text()).splitlines():
                if line.startswith("forebay_responses_total{"):
                    ending = line.split('ending="')[1].split('"')[0]
                    seen[ending] = seen.get(ending, 0) + float(line.split()[-1])
    return seen


async def test_a_server_that_drains_hands_its_waiters_over_and_loses_none(demo, session, wait_until) -> None:
    system: System = demo("--capacity-requests", "1")
    hog = await hold_the_room(system, session, 8)
    waiters = [asyncio.create_task(post(session, system.urls[0], chat(1, text=TWO_KB))) for _ in range(50)]
    await until_waiting(system, 50)
    system.kill("extproc", 0, signal.SIGTERM)
    answers = await asyncio.gather(hog, *waiters)
    refusals = Counter(headers["x-forebay-reason"] for status, headers, _ in answers if status != 200)
    assert not refusals
    await until_nothing_is_held(system, RECLAIM_S)
    await wait_until(lambda: '"event":"drained"' in system.log("server-1"), timeout_s=10)


async def test_the_only_server_that_drains_refuses_its_waiters_in_time(demo, session) -> None:
    system: System = demo(
        "--gateways", "1", "--capacity-requests", "1", environment={"FOREBAY_SERVER__DRAIN_WAIT_S": "0.5"}
    )
    hog = asyncio.create_task(post(session, system.urls[0], chat(200, ignore_eos=True)))
    await until_held(system)
    waiters = await queue(system, session, 0, 5, chat(1))
    system.kill("extproc", 0, signal.SIGTERM)
    answers = await asyncio.gather(*waiters)
    assert {(status, headers["x-forebay-reason"]) for status, headers, _ in answers} == {(503, "draining")}
    assert (await hog)[0] == 200  # what runs may finish
    await until_nothing_is_held(system, 2)
