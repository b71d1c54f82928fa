"""Context length as engines tell it."""

from __future__ import annotations

import asyncio

import pytest

from extproc.control.context import LearnedContext


class Engines:
    """Engines whose contexts a test sets."""

    def __init__(self, **tokens: int | None) -> None:
        self.tokens = tokens
        self.looks = 0
        self.learned = LearnedContext(tuple(tokens), read_engines=self.read)

    async def read(self, endpoints):
        self.looks += 1
        return [self.tokens[endpoint] for endpoint in endpoints]


async def test_the_context_is_unknown_until_an_engine_tells_it():
    engines = Engines(a=None, b=None)
    await engines.learned.step()
    assert engines.learned.tokens is None
    engines.tokens["b"] = 8192
    await engines.learned.step()
    assert engines.learned.tokens == 8192


async def test_the_pool_has_the_shortest_of_its_engines_contexts():
    engines = Engines(a=8192, b=4096)
    await engines.learned.step()
    assert engines.learned.tokens == 4096


async def test_an_engine_that_stops_answering_is_taken_at_its_last_word():
    engines = Engines(a=8192, b=4096)
    await engines.learned.step()
    engines.tokens["b"] = None
    await engines.learned.step()
    assert engines.learned.tokens == 4096


async def test_an_engine_that_starts_anew_with_a_longer_context_is_believed():
    engines = Engines(a=4096)
    await engines.learned.step()
    engines.tokens["a"] = 8192
    await engines.learned.step()
    assert engines.learned.tokens == 8192


async def test_a_pool_without_engines_has_no_context():
    engines = Engines()
    await engines.learned.step()
    assert engines.learned.tokens is None


@pytest.mark.looptime
async def test_it_looks_again_every_period():
    engines = Engines(a=4096)
    task = asyncio.create_task(engines.learned.run())
    await asyncio.sleep(40)
    task.cancel()
    await asyncio.wait([task])
    assert engines.looks == 3
