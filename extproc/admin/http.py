"""Routes of one replica's HTTP port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Protocol

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Replica(Protocol):
    """What the HTTP side shows of a replica."""

    def status(self) -> dict[str, Any]:
        """Return the figures of `GET /api/v1/status`."""
        ...

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        ...

    @property
    def is_ready(self) -> bool:
        """True while requests should be sent here."""
        ...


def application(replica: Replica) -> web.Application:
    """Return the application for one replica."""
    page = (files("extproc.admin") / "page.html").read_text(encoding="utf-8")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=replica.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if replica.is_ready else web.Response(status=503, text="not ready\n")

    async def status(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(replica.status()), content_type="application/json")

    async def pool(request: web.Request) -> web.Response:
        for found in replica.status()["pools"]:
            if found["name"] == request.match_info["name"]:
                return web.Response(body=orjson.dumps(found), content_type="application/json")
        raise web.HTTPNotFound(text=f"no pool is named {request.match_info['name']!r}\n")

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/livez", live)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/api/v1/status", status)
    app.router.add_get("/api/v1/pools/{name}", pool)
    return app
