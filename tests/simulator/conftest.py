"""Engines on real sockets, fast enough that a test need not wait for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extproc.simulator.server import serve_engine
from extproc.simulator.settings import EngineSettings

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class RunningEngine:
    """An engine that listens, and a client of it."""

    url: str
    http: aiohttp.ClientSession
    task: asyncio.Task[None]

    async def post(self, path: str, body: Any = None, **kwargs: Any) -> tuple[int, Any]:
        """Return status and JSON of a POST; the body is JSON, or sent as it is when bytes."""
        payload = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self.http.post(self.url + path, **payload, **kwargs) as response:
            return response.status, await response.json(content_type=None)

    async def stream(self, path: str, body: Any, **kwargs: Any) -> str:
        """Return the whole text of a stream."""
        async with self.http.post(self.url + path, json=body, **kwargs) as response:
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            return await response.text()

    async def get(self, path: str) -> Any:
        """Return the JSON of a GET."""
        async with self.http.get(self.url + path) as response:
            assert response.status == 200
            return await response.json()

    async def metrics(self) -> str:
        async with self.http.get(self.url + "/metrics") as response:
            return await response.text()

    async def state(self) -> dict[str, Any]:
        return await self.get("/sim/state")


StartEngine = Callable[..., Awaitable[RunningEngine]]


@pytest.fixture
async def start_engine(no_task_left: None, caplog: pytest.LogCaptureFixture) -> AsyncIterator[StartEngine]:
    """`await start_engine(**settings)`: an engine fifty times as fast as the modelled one, named `tiny`."""
    tasks: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as http:

        async def start(**settings: Any) -> RunningEngine:
            wanted = EngineSettings(**{"models": ("tiny",), "speed": 50.0} | settings)
            url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(serve_engine(wanted, host="127.0.0.1", port=0, ready=url.set_result))
            tasks.append(task)
            return RunningEngine(await url, http, task)

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    records = [record for phase in ("setup", "call", "teardown") for record in caplog.get_records(phase)]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


@pytest.fixture
async def engine(start_engine: StartEngine) -> RunningEngine:
    """An engine with the recorded one's name and context."""
    return await start_engine(max_model_len=4096)


@pytest.fixture
def recorded() -> Callable[[str], str]:
    """`recorded("chat.json")`: what vLLM answered."""
    return lambda name: (FIXTURES / name).read_text()
