"""The cheap client counts what a server answers, and the meters what a process uses."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from extproc.bench.meters import Reading
from extproc.bench.wire import Unanswered, closed_loop, open_loop, post


def forever(body=b"{}"):
    return itertools.repeat(post("/v1/chat/completions", body))


async def test_a_closed_loop_has_as_many_requests_under_way_as_clients(serve):
    under_way = most = 0

    async def answer(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        assert await request.read() == b"x" * 300_000
        under_way -= 1
        return web.Response(text="y" * 100_000)

    port = urlsplit(await serve(answer)).port
    seen = await closed_loop(port, forever(b"x" * 300_000), clients=3, seconds=0.2)
    assert len(seen.ok_s) >= 3
    assert 1 < most <= 3
    assert seen.failed == 0
    assert seen.seconds >= 0.2


async def test_an_open_loop_sends_as_many_as_the_rate_says(serve):
    async def answer(_request):
        return web.Response(text="")

    port = urlsplit(await serve(answer)).port
    seen = await open_loop(port, forever(), rate_per_s=200, seconds=0.3, seed=1)
    again = await open_loop(port, forever(), rate_per_s=200, seconds=0.3, seed=1)
    assert len(seen.ok_s) == len(again.ok_s) == pytest.approx(60, abs=30)


async def test_another_status_than_200_is_a_failure(serve):
    async def answer(_request):
        return web.Response(status=429, text="no")

    port = urlsplit(await serve(answer)).port
    seen = await closed_loop(port, forever(), clients=1, seconds=0.05)
    assert seen.failed
    assert not seen.ok_s


async def test_a_connection_that_closes_ends_the_measurement(serve):
    async def answer(request):
        request.transport.abort()

    port = urlsplit(await serve(answer)).port
    with pytest.raises(ExceptionGroup) as caught:
        await closed_loop(port, forever(), clients=1, seconds=1)
    assert caught.group_contains(Unanswered)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_reading_counts_what_a_process_used_since_another():
    before = Reading.take({"me": os.getpid()})
    started = time.process_time()
    while time.process_time() - started < 0.1:
        pass
    used = Reading.take({"me": os.getpid()}).since(before)
    assert used.processes_s["me"] >= 0.08
    assert used.others_s >= 0
