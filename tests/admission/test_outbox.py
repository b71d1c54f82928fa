"""The one way out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from extproc.admission.outbox import Outbox
from extproc.domain.errors import QueueUnavailable

pytestmark = pytest.mark.looptime


class Sink:
    """The `leave` of a queue that may be away or slow."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_away = False
        self.delay_s = 0.0
        self.tries = 0

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        self.tries += 1
        await asyncio.sleep(self.delay_s)
        if self.is_away:
            raise QueueUnavailable("leave: away")
        self.batches.append([request_id for request_id, _ in tickets])


@pytest.fixture
async def sink():
    return Sink()


@pytest.fixture
async def outbox(sink):
    outbox = Outbox(sink)
    task = asyncio.create_task(outbox.run())
    yield outbox
    task.cancel()
    await asyncio.wait([task])


async def test_what_gathers_during_a_call_goes_with_the_next_in_order(outbox, sink):
    sink.delay_s = 1
    outbox.post("r1", "a/1")
    await asyncio.sleep(0.5)
    for number in range(2, 6):
        outbox.post(f"r{number}", f"a/{number}")
    assert not outbox.is_empty
    await asyncio.sleep(2)
    assert sink.batches == [["r1"], ["r2", "r3", "r4", "r5"]]
    assert outbox.is_empty


async def test_what_fails_is_kept_and_tried_again_before_what_came_later(outbox, sink):
    sink.is_away = True
    outbox.post("r1", "a/1")
    await asyncio.sleep(1)
    outbox.post("r2", "a/2")
    assert not outbox.is_empty
    assert 2 <= sink.tries <= 10  # it pauses between tries
    sink.is_away = False
    await asyncio.sleep(1)
    assert sink.batches == [["r1", "r2"]]
    assert outbox.is_empty


async def test_what_was_on_its_way_when_the_loop_was_cancelled_is_kept(sink):
    outbox = Outbox(sink)
    sink.delay_s = 1
    outbox.post("r1", "a/1")
    task = asyncio.create_task(outbox.run())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert not outbox.is_empty
    await outbox.step()
    assert sink.batches == [["r1"]]
    assert outbox.is_empty


async def test_a_cancellation_during_the_pause_loses_nothing(sink):
    outbox = Outbox(sink)
    sink.is_away = True
    outbox.post("r1", "a/1")
    task = asyncio.create_task(outbox.run())
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    sink.is_away = False
    await outbox.step()
    assert sink.batches == [["r1"]]
