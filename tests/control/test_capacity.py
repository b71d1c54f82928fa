"""Capacity as engines report it."""

from __future__ import annotations

import asyncio

import pytest

from extproc.admission.ports import Capacity
from extproc.control.capacity import OPERATING_POINT, AutoCapacity


class Engines:
    """Engines whose figures a test sets, and a queue that remembers what it was told."""

    def __init__(self, **tokens: int | None) -> None:
        self.tokens = tokens
        self.told: list[Capacity] = []
        self.looks = 0

    async def read(self, endpoints):
        self.looks += 1
        return [self.tokens[endpoint] for endpoint in endpoints]

    async def tell(self, capacity: Capacity) -> None:
        self.told.append(capacity)

    def control(self, requests: int | None = 256) -> AutoCapacity:
        return AutoCapacity(tuple(self.tokens), requests, read_engines=self.read, set_capacity=self.tell)


async def test_capacity_is_the_operating_point_of_all_engines():
    engines = Engines(a=1000, b=3000)
    await engines.control().step()
    assert engines.told == [Capacity(int(4000 * OPERATING_POINT), 256)]


async def test_unknown_stays_none():
    engines = Engines(a=None, b=None)
    await engines.control().step()
    assert engines.told == [Capacity(None, 256)]


async def test_no_engine_at_all_counts_requests():
    engines = Engines()
    await engines.control(8).step()
    assert engines.told == [Capacity(None, 8)]


async def test_an_engine_that_stops_answering_keeps_its_share():
    engines = Engines(a=1000, b=3000)
    control = engines.control()
    await control.step()
    engines.tokens["b"] = None
    await control.step()
    assert len(engines.told) == 1


async def test_an_engine_that_is_heard_of_later_is_added():
    engines = Engines(a=1000, b=None)
    control = engines.control()
    await control.step()
    engines.tokens["b"] = 3000
    await control.step()
    assert engines.told == [Capacity(950, 256), Capacity(3800, 256)]


async def test_an_engine_that_restarts_smaller_shrinks_the_pool():
    engines = Engines(a=1000)
    control = engines.control()
    await control.step()
    engines.tokens["a"] = 500
    await control.step()
    assert engines.told[-1] == Capacity(475, 256)


async def test_the_queue_is_told_of_changes_only():
    engines = Engines(a=1000)
    control = engines.control()
    for _ in range(3):
        await control.step()
    assert len(engines.told) == 1


@pytest.mark.looptime
async def test_it_looks_again_every_period():
    engines = Engines(a=1000)
    task = asyncio.create_task(engines.control().run())
    await asyncio.sleep(14)
    task.cancel()
    await asyncio.wait([task])
    assert engines.looks == 3
