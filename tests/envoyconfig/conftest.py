"""A gateway for tests: real Envoy, ext_proc servers that do as they are told, engines in this process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from extproc.domain.errors import ConfigError
from extproc.envoyconfig import Bootstrap, Tcp, find_envoy, render
from extproc.simulator.processes import Child, start

RECORDED = Path(__file__).parents[1] / "simulator/fixtures"
"""Answers of vLLM."""

ANY_PORT = Tcp("127.0.0.1", 0)


@pytest.fixture(scope="session")
def envoy_binary() -> Path:
    try:
        return find_envoy()
    except ConfigError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


class Server:
    """An ext_proc server, see `answering_server.py`; it keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: Child | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def start(self) -> None:
        script = Path(__file__).with_name("answering_server.py")
        command = [sys.executable, script, f"127.0.0.1:{self.port}", self._folder / "journal"]
        self._child = await start("server", command, directory=self._folder)

    async def kill(self) -> None:
        assert self._child is not None
        if self._child.is_running:
            self._child.process.kill()
            await self._child.process.wait()


class Engine:
    """Answers with what it got, and with the headers in the body's `engine_headers`.

    A body with `stream` gets a stream that goes on until `finish` is set. One with `replay` gets that recorded
    answer of vLLM's, one with `filler` a JSON answer with so many bytes of text: the second half once `finish`
    is set where `midway` is `wait`, never where it is `break`.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.finish = asyncio.Event()
        self.port = 0
        app = web.Application(client_max_size=2**27)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(request.raw_path)
        do = json.loads(body) if body.startswith(b"{") else {}
        if "replay" in do:
            recorded = RECORDED / do["replay"]
            kind = "text/event-stream; charset=utf-8" if recorded.suffix == ".sse" else "application/json"
            return await self._halves(request, recorded.read_bytes(), kind, do)
        if "filler" in do:
            answer = json.loads((RECORDED / "chat.json").read_bytes())
            answer["choices"][0]["message"]["content"] = "x" * do["filler"]
            return await self._halves(request, json.dumps(answer).encode(), "application/json", do)
        if "stream" in do:
            return await self._stream(request)
        seen = {"headers": dict(request.headers), "size": len(body)}
        return web.json_response(seen, headers=do.get("engine_headers"))

    async def _halves(
        self, request: web.Request, body: bytes, kind: str, do: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": kind})
        if kind == "application/json":
            response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        if do.get("midway") == "break":
            assert request.transport is not None
            request.transport.close()
            return response
        if do.get("midway") == "wait":
            await self.finish.wait()
        await response.write(body[len(body) // 2 :])
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await self.finish.wait()
        await response.write(b"data: [DONE]\n\n")
        return response


@dataclass
class Answer:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def told(self) -> dict[str, str]:
        """The headers of Forebay."""
        return {name: value for name, value in self.headers.items() if name.startswith("x-forebay-")}


@dataclass
class Gateway:
    """Envoy and all that it talks to; everything binds free ports of the loopback."""

    folder: Path
    session: aiohttp.ClientSession
    servers: list[Server]
    engines: list[Engine]
    admin_url: str = field(init=False)
    url: str = field(init=False)

    def seen(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """What the ext_proc servers noted."""
        journal = self.folder / "journal"
        notes = map(json.loads, journal.read_text().splitlines() if journal.exists() else [])
        wanted = {"event": event, **fields}
        return [note for note in notes if all(note.get(k) == v for k, v in wanted.items())]

    async def post(
        self,
        do: dict[str, Any] | None = None,
        *,
        path: str = "/v1/chat/completions",
        size: int = 0,
        **kwargs: Any,
    ) -> Answer:
        """Send a body that says what server and engine are to do, `size` bytes or a little more."""
        body = json.dumps({**(do or {}), "padding": "x" * size}).encode()
        return await self.request("POST", path, data=BytesIO(body), **kwargs)

    async def request(self, method: str, path: str, **kwargs: Any) -> Answer:
        url = URL(self.url + path, encoded=True)  # as it stands, disguises included
        async with self.session.request(method, url, **kwargs) as response:
            return Answer(response.status, response.headers, await response.read())

    def forget(self) -> None:
        """Begin anew for another test."""
        (self.folder / "journal").write_text("")
        for engine in self.engines:
            engine.requests.clear()

    async def start_envoy(self, binary: Path, bootstrap: Bootstrap) -> Child:
        """Start Envoy and wait until it serves."""
        config, admin = self.folder / "envoy.yaml", self.folder / "admin"
        config.write_text(render(bootstrap))
        command = [binary, "-c", config, "--admin-address-path", admin, "--log-level", "warning"]
        command += ["--disable-hot-restart", "--concurrency", "1"]
        envoy = await start("envoy", command, directory=self.folder)

        async def is_ready() -> bool:
            if not (address := admin.read_text() if admin.exists() else ""):
                return False
            self.admin_url = f"http://{address}"
            async with self.session.get(f"{self.admin_url}/ready") as response:
                return response.status == 200

        await envoy.until(is_ready)
        async with self.session.get(f"{self.admin_url}/listeners?format=json") as response:
            (listener,) = json.loads(await response.read())["listener_statuses"]
        self.url = f"http://127.0.0.1:{listener['local_address']['socket_address']['port_value']}"
        return envoy


StartGateway = Callable[..., Awaitable[Gateway]]


@asynccontextmanager
async def _gateways(binary: Path, wait_until: Any, end_unsent: Any) -> AsyncIterator[StartGateway]:
    async with AsyncExitStack() as stack:

        async def start_gateway(*, servers: int = 1, engines: int = 1, **fields: Any) -> Gateway:
            folder = Path(tempfile.mkdtemp(prefix="forebay-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.push_async_callback(end_unsent)
            unlimited = aiohttp.TCPConnector(limit=0)
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=unlimited))
            gateway = Gateway(
                folder, session, [Server(folder) for _ in range(servers)], [Engine() for _ in range(engines)]
            )
            for engine in gateway.engines:
                await engine.start()
                stack.push_async_callback(engine.stop)
            for server in gateway.servers:
                await server.start()
                stack.push_async_callback(server.kill)
            for server in gateway.servers:
                await wait_until(partial(gateway.seen, "started", pid=server.pid), timeout_s=10)
                server.port = gateway.seen("started", pid=server.pid)[0]["port"]
            bootstrap = Bootstrap(
                extproc=tuple(Tcp("127.0.0.1", server.port) for server in gateway.servers),
                engines=tuple(Tcp("127.0.0.1", engine.port) for engine in gateway.engines),
                listener=ANY_PORT,
                admin=ANY_PORT,
                **fields,
            )
            envoy = await gateway.start_envoy(binary, bootstrap)
            stack.push_async_callback(envoy.stop)
            return gateway

        yield start_gateway


@pytest.fixture
async def start_gateway(envoy_binary: Path, wait_until: Any, end_unsent: Any) -> AsyncIterator[StartGateway]:
    """`await start_gateway(servers=1, engines=1, **fields of Bootstrap)`."""
    async with _gateways(envoy_binary, wait_until, end_unsent) as start_one:
        yield start_one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_gateway(envoy_binary: Path, wait_until: Any, end_unsent: Any) -> AsyncIterator[Gateway]:
    """One server, one engine, for all tests of a module: they `forget()` first, and break nothing."""
    async with _gateways(envoy_binary, wait_until, end_unsent) as start_one:
        yield await start_one()
