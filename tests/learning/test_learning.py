"""A replica that learns: what it sends, what it reads, and what it makes of it."""

from __future__ import annotations

import asyncio

import pytest
from domain.learnt import ended, foresight

from extproc.domain.errors import QueueUnavailable
from extproc.learning import HabitKey, Learning
from extproc.lessons import MemoryLessons

pytestmark = pytest.mark.looptime


class Heard:
    """A `LearningObserver` that remembers."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, float]] = []
        self.careful = 0
        self.guesses = 0

    def compared(self, kind: str, ratio: float) -> None:
        self.errors.append((kind, ratio))

    def taught(self, *, is_guess: bool) -> None:
        self.guesses += is_guess

    def calibrated(self, *, careful: int) -> None:
        self.careful = careful


class Fickle(MemoryLessons):
    """A store that is away when told."""

    is_away = False

    async def learn(self, key, lessons):
        if self.is_away:
            raise QueueUnavailable("away")
        return await super().learn(key, lessons)


def loop_ms() -> int:
    return 1_800_000_000_000 + round(asyncio.get_running_loop().time() * 1000)


@pytest.fixture
def store() -> Fickle:
    return Fickle(loop_ms)


def teach(
    learning: Learning, number: int, length: int = 200, *, first: int = 0, tenant: str = "acme"
) -> None:
    for n in range(first, first + number):
        learning.note(ended(length, foresight(tenant=tenant), ticket=f"{tenant}-{n}"))


async def test_what_one_replica_is_taught_another_knows(store):
    one, other = Learning(store, Heard()), Learning(store, Heard())
    teach(one, 30)
    await one.step()
    assert other.habits("llama", "acme") is None
    await other.step()
    known = other.habits("llama", "acme")
    assert known is not None
    assert known.lessons == 30


async def test_two_replicas_that_hear_of_one_response_teach_it_once(store):
    replicas = [Learning(store, Heard()) for _ in range(2)]
    for replica in replicas:
        teach(replica, 1)
        await replica.step()
    assert (await store.read(HabitKey("llama", "acme"))).lasting["n"] == 1


async def test_lessons_are_sent_within_a_moment(store):
    learning = Learning(store, Heard())
    running = asyncio.create_task(learning.run())
    await asyncio.sleep(0.5)
    teach(learning, 1)
    await asyncio.sleep(0.1)
    assert (await store.read(HabitKey("llama", "acme"))).lasting["n"] == 1
    running.cancel()


async def test_lessons_wait_for_a_store_that_is_away(store):
    learning = Learning(store, Heard())
    store.is_away = True
    teach(learning, 3)
    await learning.step()
    store.is_away = False
    await learning.step()
    assert (await store.read(HabitKey("llama", "acme"))).lasting["n"] == 3


async def test_a_flood_of_responses_is_sampled(store):
    learning = Learning(store, Heard())
    teach(learning, 5_000)
    await learning.step()
    assert (await store.read(HabitKey("llama", "acme"))).lasting["n"] == 200


async def test_nobodys_habits_are_read_more_often_than_every_few_seconds(store):
    learning = Learning(store, Heard())
    teach(learning, 20)
    await learning.step()
    teach(learning, 20, first=20)
    await learning.step()
    assert learning.habits("llama", "acme").lessons == 20
    await asyncio.sleep(5)
    await learning.step()
    assert learning.habits("llama", "acme").lessons == 40


async def test_peers_are_those_of_the_same_model_of_whom_enough_is_known(store):
    learning = Learning(store, Heard())
    teach(learning, 30, tenant="known")
    teach(learning, 5, tenant="new")
    await learning.step()
    assert learning.peers("llama") == [learning.habits("llama", "known")]
    assert learning.peers("other") == []


async def test_errors_of_estimates_are_told(store):
    heard = Heard()
    learning = Learning(store, heard)
    learning.note(ended(150, foresight(expected=100, counted=200), prompt=220))
    assert heard.errors == [("prompt", 1.1), ("output", 1.5)]


async def test_estimates_that_are_far_too_low_are_counted(store):
    heard = Heard()
    learning = Learning(store, heard)
    for n in range(60):
        learning.note(ended(300, foresight(expected=100), ticket=f"t-{n}"))
    await learning.step()
    assert heard.careful == 1


async def test_a_response_without_usage_is_judged_by_its_size(store):
    heard = Heard()
    learning = Learning(store, heard)
    for n in range(30):
        learning.note(ended(100, ticket=f"t-{n}", body_bytes=20_000, is_streaming=True))
    await learning.step()
    learning.note(ended(None, ticket="unsaid", body_bytes=40_000, is_streaming=True))
    learning.note(ended(None, ticket="unknown", body_bytes=40_000))
    await learning.flush()
    assert (await store.read(HabitKey("llama", "acme"))).lasting["n"] == 31
    assert heard.guesses == 1
