"""The contract of a lesson store, on real stores and the twin in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from extproc.domain.errors import QueueUnavailable
from extproc.domain.lesson import Lesson
from extproc.learning.ports import HabitKey, LessonStore
from extproc.lessons import MemoryLessons, RedisLessons
from extproc.waitqueue.client import connect

ACME, OTHER = HabitKey("llama", "acme"), HabitKey("llama", "other: \u00e9")
POOL = "llama-70b"


class World:
    """A store on a clock by hand, and further callers of the same store."""

    def __init__(self, make: Callable[[], LessonStore]) -> None:
        self.make = make
        self.store = make()
        self.now_ms = 1_800_000_000_000


@pytest.fixture(params=["memory", "valkey", "redis"])
async def world(
    request: pytest.FixtureRequest, store_of_kind: Callable[[str], Any], no_task_left: None
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        found: World

        def now_ms() -> int:
            return found.now_ms

        if request.param == "memory":
            twin = MemoryLessons(now_ms)
            found = World(lambda: twin)
        else:
            server = stack.enter_context(store_of_kind(request.param).lend())
            client = await stack.enter_async_context(connect(server.url, timeout_s=2.0, max_connections=4))
            found = World(lambda: RedisLessons(client, POOL, timeout_s=2.0, clock_ms=now_ms))
        yield found


def lessons(number: int, *, first: int = 0, **counters: int) -> list[Lesson]:
    return [
        Lesson(f"t-{n}", "llama", "acme", {"n": 1, **(counters or {"o:5:3:interactive|26": 1})})
        for n in range(first, first + number)
    ]


async def test_what_one_replica_learns_all_know(world):
    assert await world.store.learn(ACME, lessons(3)) == 3
    found = await world.make().read(ACME)
    assert found.recent == found.lasting == {"n": 3, "o:5:3:interactive|26": 3}
    assert (await world.store.read(OTHER)).lasting == {}


async def test_a_response_teaches_once(world):
    assert await world.store.learn(ACME, lessons(3)) == 3
    assert await world.make().learn(ACME, lessons(4)) == 1
    assert (await world.store.read(ACME)).lasting["n"] == 4


async def test_more_than_a_batch_is_learned(world):
    assert await world.store.learn(ACME, lessons(180)) == 180
    assert (await world.store.read(ACME)).lasting["n"] == 180


async def test_recent_lessons_fade_at_a_hundred_and_lasting_ones_do_not(world):
    await world.store.learn(ACME, lessons(99))
    assert (await world.store.read(ACME)).recent["n"] == 99
    await world.store.learn(ACME, lessons(1, first=99))
    found = await world.store.read(ACME)
    assert found.recent["n"] == 50
    assert found.recent["o:5:3:interactive|26"] in (50, 51)
    assert found.lasting["n"] == 100


async def test_what_is_rare_does_not_all_fade_at_once(world):
    for n in range(100):
        await world.store.learn(ACME, lessons(1, first=n, **{f"o:5:3:interactive|{n}": 1}))
    kept = [name for name in (await world.store.read(ACME)).recent if name.startswith("o:")]
    assert 45 <= len(kept) <= 55


async def test_after_two_hundred_lessons_of_another_kind_little_is_left_of_the_first(world):
    await world.store.learn(ACME, lessons(500, old=1))
    await world.store.learn(ACME, lessons(200, first=500, new=1))
    found = (await world.store.read(ACME)).recent
    assert found.get("old", 0) <= 0.1 * found["new"]


async def test_whose_habits_changed_is_told_the_latest_first(world):
    await world.store.learn(ACME, lessons(1))
    first_ms, changed = await world.store.changed(0, 10)
    assert (first_ms, changed) == (world.now_ms, [ACME])
    world.now_ms += 1000
    await world.store.learn(OTHER, lessons(1, first=1))
    assert (await world.store.changed(0, 10))[1] == [OTHER, ACME]
    assert (await world.store.changed(0, 1))[1] == [OTHER]
    assert (await world.store.changed(first_ms + 1, 10))[1] == [OTHER]


async def test_no_more_than_a_thousand_tenants_are_known(world):
    for n in range(1_000):
        assert await world.store.learn(HabitKey("llama", f"tenant-{n}"), lessons(1, first=n)) == 1
    assert await world.store.learn(ACME, lessons(1, first=5_000)) == 0
    assert await world.store.learn(HabitKey("llama", "tenant-7"), lessons(1, first=5_001)) == 1


async def test_who_was_not_seen_for_a_fortnight_makes_room(world):
    await world.store.learn(ACME, lessons(1))
    world.now_ms += 15 * 86_400_000
    await world.store.learn(OTHER, lessons(1, first=1))
    assert (await world.store.changed(0, 10))[1] == [OTHER]


# --- Redis alone ----------------------------------------------------------------------------------------


async def test_every_key_expires(store_server):
    async with connect(store_server.url, timeout_s=2.0, max_connections=2) as client:
        await RedisLessons(client, POOL, timeout_s=2.0).learn(ACME, lessons(1))
        keys = [key async for key in client.scan_iter()]
        assert len(keys) == 4
        assert all([await client.pttl(key) > 0 for key in keys])
        assert all(key.startswith("{forebay:v1:llama-70b}:habits:") for key in keys)


async def test_a_store_that_forgot_its_scripts_learns_all_the_same(store_server):
    async with connect(store_server.url, timeout_s=2.0, max_connections=2) as client:
        store = RedisLessons(client, POOL, timeout_s=2.0)
        await store.learn(ACME, lessons(1))
        await client.script_flush()
        assert await store.learn(ACME, lessons(1, first=1)) == 1


async def test_a_store_that_is_away_says_so(own_store):
    async with connect(own_store.url, timeout_s=0.2, max_connections=2) as client:
        store = RedisLessons(client, POOL, timeout_s=0.2)
        own_store.stop()
        for call in (store.learn(ACME, lessons(1)), store.changed(0, 1), store.read(ACME)):
            with pytest.raises(QueueUnavailable):
                await asyncio.wait_for(call, 5)
