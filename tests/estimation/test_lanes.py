"""Lanes: in order, bounded, and away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from extproc.estimation.lanes import Lane


@pytest.fixture(params=[1, 8], ids=["singly", "in batches"])
def lane(request) -> Iterator[Lane[object]]:
    made: Lane[object] = Lane("test", threads=1, most_waiting=2, batch=request.param)
    yield made
    made.close()


async def test_work_is_done_in_another_thread_and_its_result_comes_back(lane):
    assert await lane.run(threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize("fault", [KeyError("x"), BaseException("panic")])
async def test_what_work_raises_the_waiter_gets(lane, fault):
    def fail() -> None:
        raise fault

    with pytest.raises(type(fault)) as raised:
        await lane.run(fail)
    assert raised.value is fault
    assert await lane.run(lambda: "still here") == "still here"


async def test_jobs_run_in_order(lane):
    done: list[int] = []
    await asyncio.gather(*(lane.run(lambda n=n: done.append(n)) for n in range(50)))
    assert done == list(range(50))


async def test_a_lane_is_full_while_as_many_as_wanted_are_unfinished(lane):
    gate = threading.Event()
    futures = [lane.run(gate.wait)]
    assert not lane.is_full
    futures.append(lane.run(gate.wait))
    assert lane.is_full
    gate.set()
    await asyncio.gather(*futures)
    assert not lane.is_full


async def test_work_cancelled_before_its_turn_is_not_begun(lane):
    gate, done = threading.Event(), []
    first, second = lane.run(gate.wait), lane.run(lambda: done.append(2))
    second.cancel()
    gate.set()
    await first
    assert await lane.run(lambda: list(done)) == []
    assert not lane.is_full


async def test_work_cancelled_in_its_turn_harms_nobody(lane):
    begun, gate = threading.Event(), threading.Event()
    future = lane.run(lambda: (begun.set(), gate.wait()))
    await asyncio.to_thread(begun.wait)
    future.cancel()
    gate.set()
    assert await lane.run(lambda: "next") == "next"


async def test_closing_finishes_the_line_and_ends_the_threads():
    lane: Lane[int] = Lane("test-closing", threads=2, most_waiting=9)
    futures = [lane.run(lambda n=n: n) for n in range(20)]
    lane.close()
    assert await asyncio.gather(*futures) == list(range(20))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-closing")]
    with pytest.raises(RuntimeError, match="closed"):
        lane.run(lambda: 0)


def test_a_loop_that_is_gone_does_not_end_the_thread():
    lane: Lane[object] = Lane("test", threads=1, most_waiting=2)
    gate = threading.Event()

    async def leave() -> None:
        lane.run(gate.wait)

    async def result() -> object:
        return await lane.run(lambda: "still here")

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(result()) == "still here"
    lane.close()


@pytest.mark.parametrize("threads", [1, 3])
async def test_every_job_of_every_batch_is_answered(threads):
    lane: Lane[int] = Lane("test", threads=threads, most_waiting=1000, batch=8)
    answers = await asyncio.gather(*(lane.run(lambda n=n: n) for n in range(500)))
    assert answers == list(range(500))
    last = [lane.run(lambda n=n: n) for n in range(20)]
    lane.close()
    assert await asyncio.gather(*last) == list(range(20))
