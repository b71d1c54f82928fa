"""Calls that share a connection: each gets its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from extproc.waitqueue.client import connect
from extproc.waitqueue.lane import Lane


@pytest.fixture
async def client(store_server, no_task_left):
    async with connect(store_server.url, timeout_s=1.0, max_connections=4) as client:
        yield client


async def test_calls_made_together_get_their_own_answers(client):
    lane = Lane(client, timeout_s=1.0)
    answers = await asyncio.gather(*(lane.call(("ECHO", str(n))) for n in range(500)))
    assert answers == [str(n) for n in range(500)]


async def test_calls_run_in_the_order_of_asking(client):
    lane = Lane(client, timeout_s=1.0)
    await asyncio.gather(*(lane.call(("RPUSH", "order", n)) for n in range(200)))
    await client.expire("order", 60)
    assert await client.lrange("order", 0, -1) == [str(n) for n in range(200)]


async def test_a_fault_is_raised_to_its_own_caller_only(client):
    lane = Lane(client, timeout_s=1.0)
    calls = [lane.call(("ECHO", "before")), lane.call(("NOSUCH",)), lane.call(("ECHO", "after"))]
    before, fault, after = await asyncio.gather(*calls, return_exceptions=True)
    assert (before, after) == ("before", "after")
    assert isinstance(fault, ResponseError)


async def test_cancelled_callers_do_not_shift_the_answers_of_others(client):
    lane = Lane(client, timeout_s=1.0)
    for turn in range(50):
        tasks = [asyncio.create_task(lane.call(("ECHO", f"{turn}/{n}"))) for n in range(20)]
        for _ in range(turn % 6):  # at different points of the journey
            await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for n, answer in enumerate(answers):
            assert isinstance(answer, asyncio.CancelledError) if n % 3 == 0 else answer == f"{turn}/{n}"
    assert await lane.call(("ECHO", "still in step")) == "still in step"


async def test_when_all_callers_are_cancelled_the_lane_still_works(client):
    lane = Lane(client, timeout_s=1.0)
    task = asyncio.create_task(lane.call(("ECHO", "1")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await lane.call(("ECHO", "2")) == "2"


async def test_callers_that_come_during_a_round_trip_share_the_next(client):
    lane = Lane(client, timeout_s=1.0)
    await lane.call(("PING",))
    before = (await client.info("stats"))["total_reads_processed"]
    await asyncio.gather(*(lane.call(("ECHO", n)) for n in range(300)))
    after = (await client.info("stats"))["total_reads_processed"]
    assert after - before <= 5


async def test_a_connection_killed_between_calls_is_made_anew(client):
    lane = Lane(client, timeout_s=1.0)
    await lane.call(("PING",))
    for _ in range(3):
        await client.client_kill_filter(_type="normal", skipme=True)
        answers = await asyncio.gather(*(lane.call(("ECHO", str(n))) for n in range(5)))
        assert answers == [str(n) for n in range(5)]


async def test_a_restarted_server_is_found_again(own_store, no_task_left):
    async with connect(own_store.url, timeout_s=1.0, max_connections=4) as client:
        lane = Lane(client, timeout_s=1.0)
        await lane.call(("PING",))
        own_store.stop()
        own_store.start()
        assert await lane.call(("ECHO", "back")) == "back"


async def test_a_silent_server_fails_all_who_wait_when_it_fails_the_first(own_store, no_task_left):
    async with connect(own_store.url, timeout_s=0.2, max_connections=4) as client:
        lane = Lane(client, timeout_s=0.2)
        await lane.call(("PING",))
        own_store.pause()
        first = asyncio.create_task(lane.call(("PING",)))
        await asyncio.sleep(0.1)
        behind = [asyncio.create_task(lane.call(("PING",))) for _ in range(50)]
        await asyncio.wait([first])
        await asyncio.sleep(0.01)
        assert all(isinstance(task.exception(), TimeoutError) for task in (first, *behind))
        own_store.resume()
        assert await lane.call(("ECHO", "back")) == "back"


async def test_a_stall_of_our_own_loop_is_not_blamed_on_redis(client):
    lane = Lane(client, timeout_s=0.2, spacing_s=0.0)
    await lane.call(("PING",))
    call = asyncio.create_task(lane.call(("ECHO", "in time")))
    await asyncio.sleep(0)  # it sets out
    await asyncio.sleep(0)  # and has written
    assert lane._journey
    time.sleep(0.5)  # noqa: ASYNC251 - the stall
    assert await call == "in time"


async def test_a_server_that_is_not_there_is_an_error_at_once(tmp_path, no_task_left):
    async with connect(f"unix://{tmp_path}/none", timeout_s=5.0, max_connections=4) as client:
        lane = Lane(client, timeout_s=5.0)
        with pytest.raises(RedisConnectionError):
            await lane.call(("PING",))


async def test_closing_the_client_closes_the_lane(store_server, no_task_left):
    client = connect(store_server.url, timeout_s=1.0, max_connections=4)
    lane = Lane(client, timeout_s=1.0)
    await lane.call(("PING",))
    await client.aclose()
    assert lane._connection is not None
    assert not lane._connection.is_connected


async def test_text_that_utf8_cannot_express_is_refused_before_it_travels(client):
    lane = Lane(client, timeout_s=1.0)
    with pytest.raises(UnicodeEncodeError):
        await lane.call(("ECHO", "\ud800"))
    assert await lane.call(("ECHO", "ok")) == "ok"


async def test_a_patient_call_travels_with_the_next_in_a_hurry(client):
    lane = Lane(client, timeout_s=1.0, spacing_s=10.0)
    patient = asyncio.create_task(lane.call(("ECHO", "patient"), is_patient=True))
    await asyncio.sleep(0.05)
    assert not patient.done()
    assert await lane.call(("ECHO", "hurried")) == "hurried"
    assert await asyncio.wait_for(patient, timeout=1.0) == "patient"


async def test_a_patient_call_goes_alone_when_nobody_comes_and_holds_up_nobody(client):
    lane = Lane(client, timeout_s=1.0, spacing_s=0.05)
    assert await lane.call(("ECHO", "patient"), is_patient=True) == "patient"
    assert lane._next_s < asyncio.get_running_loop().time()


async def test_calls_that_come_too_soon_after_a_round_trip_gather_for_the_next(client):
    lane = Lane(client, timeout_s=1.0, spacing_s=0.2)
    await lane.call(("CLIENT", "SETNAME", "lane"))
    begun_s = time.monotonic()
    calls = [asyncio.create_task(lane.call(("ECHO", str(n)))) for n in range(3)]
    await asyncio.sleep(0.05)
    assert not any(call.done() for call in calls)
    assert await asyncio.gather(*calls) == ["0", "1", "2"]
    assert time.monotonic() - begun_s >= 0.1


def test_the_lane_keeps_time_under_uvloop(store_server):
    """Its `call_at` answers with a handle that has no time when the time is near."""

    async def many_rounds() -> list[str]:
        async with connect(store_server.url, timeout_s=1.0, max_connections=4) as client:
            lane = Lane(client, timeout_s=1.0)
            answers = [await lane.call(("ECHO", str(n)), is_patient=n % 3 == 0) for n in range(300)]
            answers += await asyncio.gather(
                *(lane.call(("ECHO", str(n)), is_patient=n % 2 == 0) for n in range(300, 600))
            )
            return answers

    assert uvloop.run(many_rounds()) == [str(n) for n in range(600)]
