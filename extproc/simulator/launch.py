"""Starts a whole system, bottom up: Redis, engines, servers, Envoys."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from extproc import settings as configuration
from extproc.app.gateway import reads_responses
from extproc.domain.errors import ConfigError
from extproc.envoyconfig import Bootstrap, Tcp, UnixSocket, render
from extproc.envoyconfig.binary import find_envoy
from extproc.simulator import store
from extproc.simulator.console import Story
from extproc.simulator.processes import Child, accepts, claim_port, free_ports, start

Engine = tuple[str, Child | None]
"""An engine's URL, and its process unless it was given."""

_HOST = "127.0.0.1"
_DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True)
class Gateway:
    """One Envoy with its server."""

    url: str
    extproc: str
    admin: str
    envoy_admin: str
    envoy: Child
    server: Child

    def as_json(self) -> dict[str, Any]:
        """Return the gateway as the contract has it."""
        return {
            "url": self.url,
            "extproc": self.extproc,
            "admin": self.admin,
            "envoy_admin": self.envoy_admin,
            "pid_envoy": self.envoy.pid,
            "pid_extproc": self.server.pid,
        }


@dataclass(frozen=True, slots=True)
class System:
    """Everything that runs, with where to find it.

    Attributes:
        gateways: in order of their ports.
        redis: URL of the shared store.
        engines: URL of each engine, and its process unless it was given.
        config: the configuration that the servers read.
        model: a model that the engines serve.
    """

    gateways: list[Gateway]
    redis: str
    engines: list[Engine]
    config: Path
    model: str

    def as_json(self) -> dict[str, Any]:
        """Return the system as the contract has it."""
        return {
            "gateways": [gateway.as_json() for gateway in self.gateways],
            "redis": self.redis,
            "engines": [{"url": url, "pid": child.pid if child else None} for url, child in self.engines],
            "config": str(self.config),
        }

    def children(self) -> list[Child]:
        """Return all processes, in the order in which they should end."""
        gateways = [c for gateway in self.gateways for c in (gateway.envoy, gateway.server)]
        return [*gateways, *(child for _, child in self.engines if child)]


@dataclass(frozen=True, slots=True)
class _Server:
    child: Child
    beside: UnixSocket
    address: Tcp
    http: str


class Launcher:
    """Starts processes in one directory; what it starts ends with the stack, in reverse.

    Args:
        directory: for configurations and logs.
        stack: ends the processes.
        story: is told of each step.
    """

    def __init__(self, directory: Path, stack: AsyncExitStack, story: Story) -> None:
        self._directory = directory
        self._stack = stack
        self._story = story
        self._envoy = find_envoy()

    async def redis(self) -> str:
        """Start the shared store and return its URL."""
        [port] = free_ports(1)
        url = f"redis://{_HOST}:{port}/0"
        with self._story.step("Redis", url):
            await self._start("redis", store.command(port, self._directory), lambda: accepts(_HOST, port))
        return url

    async def engines(self, number: int, models: list[str], speed: float) -> list[Engine]:
        """Start simulated engines and return their URLs."""
        names = [word for model in models for word in ("--model", model)]

        async def engine(index: int, port: int) -> Engine:
            url = f"http://{_HOST}:{port}"
            command = [*_forebay("engine"), "--port", str(port), "--speed", str(speed), *names]
            with self._story.step(f"engine {index}", f"{url}, simulated"):
                return url, await self._start(f"engine-{index}", command, answers(f"{url}/health"))

        return await asyncio.gather(*(engine(i, port) for i, port in enumerate(free_ports(number), 1)))

    async def gateways(self, claims: list[socket.socket], config: Path, engines: list[str]) -> list[Gateway]:
        """Start a server and an Envoy for each claimed port; each Envoy falls back to the other servers.

        As in production an Envoy reaches the server beside it by a Unix socket: a tenth less work for both.
        """
        ports = [claim.getsockname()[1] for claim in claims]
        servers = await asyncio.gather(*(self._server(index, config) for index in range(1, len(ports) + 1)))
        gateways = []
        for index, (port, admin_port) in enumerate(zip(ports, free_ports(len(ports)), strict=True)):
            others = [server.address for server in servers if server is not servers[index]]
            bootstrap = Bootstrap(
                extproc=(servers[index].beside, *others),
                engines=tuple(upstream(url) for url in engines),
                listener=Tcp(_HOST, port),
                admin=Tcp(_HOST, admin_port),
                node_id=f"gateway-{index + 1}",
                reads_responses=reads_responses(configuration.load(config)),
                shares_port=False,
            )
            claims[index].close()
            gateways.append(
                Gateway(
                    url=f"http://{_HOST}:{port}",
                    extproc=f"{_HOST}:{servers[index].address.port}",
                    admin=servers[index].http,
                    envoy_admin=f"http://{_HOST}:{admin_port}",
                    envoy=await self._gateway(index + 1, bootstrap),
                    server=servers[index].child,
                )
            )
        return gateways

    async def _server(self, number: int, config: Path) -> _Server:
        grpc, http = free_ports(2)
        beside = UnixSocket(str(self._directory.absolute() / f"server-{number}.sock"))
        environment = {
            "FOREBAY_SERVER__GRPC": f"{_HOST}:{grpc}",
            "FOREBAY_SERVER__UNIX_SOCKET": beside.path,
            "FOREBAY_SERVER__HTTP": f"{_HOST}:{http}",
        }
        command = [*_forebay("serve"), "--config", str(config)]
        with self._story.step(f"server {number}", f"ext_proc on {_HOST}:{grpc}"):
            is_ready = answers(f"http://{_HOST}:{http}/readyz")
            child = await self._start(f"server-{number}", command, is_ready, environment)
        return _Server(child, beside, Tcp(_HOST, grpc), f"http://{_HOST}:{http}")

    async def _gateway(self, number: int, bootstrap: Bootstrap) -> Child:
        path = self._directory / f"envoy-{number}.yaml"
        path.write_text(render(bootstrap), encoding="utf-8")
        flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
        with self._story.step(f"gateway {number}", f"http://{_HOST}:{bootstrap.listener.port}, Envoy"):
            is_ready = answers(f"http://{_HOST}:{bootstrap.admin.port}/ready")
            return await self._start(
                f"envoy-{number}", [self._envoy, "--config-path", path, *flags], is_ready
            )

    async def _start(
        self,
        name: str,
        command: Sequence[str | Path],
        is_ready: Callable[[], Awaitable[bool]],
        environment: dict[str, str] | None = None,
    ) -> Child:
        child = await start(name, command, directory=self._directory, environment=environment)
        self._stack.push_async_callback(child.stop)
        await child.until(is_ready)
        return child


def claim_ports(number: int, first: int | None, stack: ExitStack) -> list[socket.socket]:
    """Claim ports for gateways: `first` and those after it, or the usual ones where they are free.

    Two demos that start at once would both find the usual ones free, and their Envoys share the clients.

    Raises:
        ConfigError: a port that was asked for is in use.
    """
    wanted = [(first or _DEFAULT_PORT) + n for n in range(number)]
    claims = [stack.enter_context(claim) for claim in map(claim_port, wanted) if claim is not None]
    if len(claims) == number:
        return claims
    if first is not None:
        taken = sorted({*wanted} - {claim.getsockname()[1] for claim in claims})
        raise ConfigError(f"--port {first}: port {taken[0]} is in use; leave --port out to have free ones")
    for claim in claims:
        claim.close()
    return [stack.enter_context(claim) for claim in (claim_port(0) for _ in range(number)) if claim]


def upstream(url: str) -> Tcp:
    """Return an engine's host and port.

    Raises:
        ConfigError: the URL is not plain http with a host.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise ConfigError(f"--upstream {url}: must be like http://host:port")
    return Tcp(parts.hostname, parts.port or 80)


def answers(url: str) -> Callable[[], Awaitable[bool]]:
    """Return a check that a page answers 200."""

    async def check() -> bool:
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as page:
                return page.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    return check


def _forebay(command: str) -> list[str]:
    return [sys.executable, "-m", "extproc", command]
