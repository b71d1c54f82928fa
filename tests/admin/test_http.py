"""The routes of a replica's HTTP port, and the client that reads them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from rich.console import Console

from extproc.admin import client
from extproc.admin.http import application
from extproc.app.servers import http_server
from extproc.domain.errors import ConfigError

UNKNOWN = {
    "name": "mixtral",
    "mode": "off",
    "store_up": False,
    "capacity": {"tokens": None, "requests": None},
    "held": {"tokens": None, "requests": None},
    "waiting": {"interactive": {"requests": 0, "tokens": 0}},
    "drain_tokens_per_s": None,
    "replicas": None,
    "estimates": [],
}
KNOWN = {
    "name": "llama",
    "mode": "enforce",
    "store_up": True,
    "capacity": {"tokens": 995_000, "requests": None},
    "held": {"tokens": 12_345, "requests": 7},
    "waiting": {"interactive": {"requests": 1, "tokens": 60}, "batch": {"requests": 2, "tokens": 5000}},
    "drain_tokens_per_s": 1234.5,
    "replicas": 2,
    "estimates": [
        {
            "model": "llama-3",
            "tenant": "acme",
            "lessons": 1200,
            "output_bias": 1.754,
            "output_spread": 9.0,
            "prompt_bias": None,
            "is_careful": True,
        }
    ],
}


class Shown:
    """What a replica shows; see `extproc.admin.http.Replica`."""

    is_ready = True

    def status(self) -> dict[str, Any]:
        return {"replica": "host-1", "version": "0.1.0", "pools": [KNOWN, UNKNOWN]}

    def exposition(self) -> bytes:
        return b"forebay_store_up 1\n"


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
async def url(shown, no_task_left) -> AsyncIterator[str]:
    async with http_server(application(shown), "127.0.0.1:0") as address:
        yield f"http://{address}"


@pytest.fixture
async def get(url):
    async def get(path: str) -> tuple[int, str, str]:
        async with aiohttp.ClientSession() as session, session.get(url + path) as response:
            return response.status, response.content_type, await response.text()

    return get


async def test_readiness_follows_the_replica_and_liveness_does_not(get, shown):
    assert (await get("/readyz"))[0] == 200
    shown.is_ready = False
    assert (await get("/readyz"))[0] == 503
    assert (await get("/livez"))[0] == 200


async def test_each_route_has_its_type(get):
    assert (await get("/metrics"))[1:] == ("text/plain", "forebay_store_up 1\n")
    assert (await get("/api/v1/status"))[1] == "application/json"
    assert (await get("/api/v1/pools/llama"))[1] == "application/json"
    assert (await get("/"))[1] == "text/html"


async def test_a_pool_that_is_not_there_is_named(get):
    status, _, text = await get("/api/v1/pools/gpt")
    assert (status, text) == (404, "no pool is named 'gpt'\n")


async def test_the_page_asks_nobody_but_the_replica(get):
    _, _, page = await get("/")
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize("address", ["127.0.0.1:70000", "127.0.0.1:x", "nowhere.invalid:80"])
async def test_an_address_that_cannot_be_bound_is_a_fault(address, shown):
    with pytest.raises(ConfigError, match=address):
        async with http_server(application(shown), address):
            pass


async def test_the_client_reads_what_the_api_says(url, shown):
    assert await client.fetch_status(f"{url}/") == shown.status()


async def test_somebody_else_at_the_address_is_a_fault(no_task_left):
    async def text(_):
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/api/v1/status", text)
    async with http_server(app, "127.0.0.1:0") as address:
        with pytest.raises(ConfigError, match="no forebay answers there"):
            await client.fetch_status(f"http://{address}")


def test_the_table_has_a_row_for_each_pool_and_class():
    console = Console(file=io.StringIO(), width=200)
    console.print(client.table(Shown().status()))
    text = console.file.getvalue()
    lines = [line.replace("│", "").split() for line in text.splitlines() if "interactive" in line]
    assert lines[0] == [
        "llama",
        "(enforce)",
        "12,345",
        "of",
        "995,000",
        "7",
        "interactive",
        "1",
        "60",
        "1,234",
        "2",
        "up",
    ]
    assert lines[1] == ["mixtral", "(off)", "?", "?", "interactive", "0", "0", "?", "?", "away"]
    assert "batch" in text


def test_the_report_tells_how_right_estimates_were():
    console = Console(file=io.StringIO(), width=200)
    console.print(client.report(Shown().status()))
    (line,) = [line for line in console.file.getvalue().splitlines() if "acme" in line]
    told = line.replace("│", "").split()
    assert told == ["llama-3", "acme", "1,200", "x1.75", "x9.00", "?", "careful"]


async def test_watching_shows_it_again_and_again(url, shown, wait_until):
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    watching = asyncio.create_task(client.watch(url, 0.01, console))
    await wait_until(lambda: console.file.getvalue().count("host-1") >= 3)
    watching.cancel()
    await asyncio.wait([watching])
