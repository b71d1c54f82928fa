"""Engines' pages over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from extproc.backends import scraper
from extproc.backends.scraper import Scraper

PAGE = (Path(__file__).parent / "fixtures" / "vllm_idle.txt").read_text()
MODELS = (Path(__file__).parent / "fixtures" / "vllm_models.json").read_bytes()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def serve(no_task_left) -> AsyncIterator[Callable]:
    """`await serve(metrics, models)`: an engine with these pages; returns its URL."""
    runners = []

    async def start(metrics, models=None) -> str:
        app = web.Application()
        app.router.add_get("/metrics", metrics)
        if models is not None:
            app.router.add_get("/v1/models", models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def page(_):
    return web.Response(text=PAGE)


async def test_each_engine_is_asked_and_keeps_its_place(serve, session):
    async def broken(_):
        return web.Response(status=500, text=PAGE)

    good, bad = await serve(page), await serve(broken)
    nobody = "http://127.0.0.1:1"
    assert await Scraper(session).kv_tokens([good, bad, nobody, f"{good}/"]) == [
        1_048_576,
        None,
        None,
        1_048_576,
    ]


async def test_an_engine_that_is_silent_is_unknown(serve, session, monkeypatch):
    over = asyncio.Event()

    async def silent(_):
        await over.wait()
        return web.Response()

    monkeypatch.setattr(scraper, "_TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    assert await Scraper(session).kv_tokens([await serve(silent)]) == [None]
    over.set()


async def test_a_page_in_pieces_is_read_whole(serve, session):
    async def pieces(request):
        response = web.StreamResponse()
        await response.prepare(request)
        half = len(PAGE) // 2
        await response.write(PAGE[:half].encode())
        await asyncio.sleep(0.05)  # or the halves arrive as one
        await response.write(PAGE[half:].encode())
        return response

    assert await Scraper(session).kv_tokens([await serve(pieces)]) == [1_048_576]


async def test_a_page_that_does_not_end_is_unknown(serve, session, monkeypatch):
    monkeypatch.setattr(scraper, "_MAX_BYTES", len(PAGE) // 2)
    assert await Scraper(session).kv_tokens([await serve(page)]) == [None]


async def test_each_engine_tells_its_context(serve, session):
    async def models(_):
        return web.Response(body=MODELS)

    engine, other = await serve(page, models), await serve(page)
    assert await Scraper(session).context_tokens([other, engine]) == [None, 4096]


async def test_a_page_that_is_no_text_is_unknown(serve, session):
    async def binary(_):
        return web.Response(body=b"\xff\x00" * 100)

    assert await Scraper(session).kv_tokens([await serve(binary)]) == [None]
