"""The simulated engine as an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from extproc.simulator.api.chat import ChatBody, ChatReply
from extproc.simulator.api.completions import CompletionBody, CompletionReply
from extproc.simulator.api.endpoint import Endpoint, Service, json_response
from extproc.simulator.api.errors import ApiError
from extproc.simulator.api.info import Info
from extproc.simulator.api.messages import MessagesBody, MessagesReply
from extproc.simulator.api.pooling import (
    EmbeddingBody,
    EmbeddingReply,
    RerankBody,
    RerankReply,
    ScoreBody,
    ScoreReply,
)
from extproc.simulator.api.reply import Reply
from extproc.simulator.api.responses import ResponsesBody, ResponsesReply
from extproc.simulator.api.tgi import TgiBody, TgiReply, TgiStreamBody
from extproc.simulator.engine import Engine
from extproc.simulator.journal import Journal
from extproc.simulator.settings import EngineSettings
from extproc.simulator.telemetry import Telemetry
from extproc.simulator.text import TokenCounter

_MAX_BODY_BYTES = 64 << 20  # vLLM has no limit; this is above what any test sends
_SHUTDOWN_S = 0.5
_STEPS = web.AppKey("steps", asyncio.Task[None])


def application(settings: EngineSettings) -> web.Application:
    """Return an engine as an application; run it with `handler_cancellation=True`.

    Without that, aiohttp would let a request run on after its client has left.
    """
    telemetry = Telemetry(settings)
    engine = Engine(settings, telemetry)
    service = Service(
        settings=settings,
        engine=engine,
        journal=Journal(),
        count=TokenCounter(tokens_per_char=settings.tokens_per_char, image_tokens=settings.image_tokens),
    )
    app = web.Application(middlewares=[_word_errors], client_max_size=_MAX_BODY_BYTES)
    app.add_routes(_inference_routes(service))
    app.add_routes(Info(service, telemetry).routes())
    app.cleanup_ctx.append(_stepping(engine))
    app.on_shutdown.append(_stopping(engine))
    return app


async def serve_engine(
    settings: EngineSettings, *, host: str, port: int, ready: Callable[[str], None] | None = None
) -> None:
    """Run an engine until SIGTERM or SIGINT; open streams are cut off then, as when a pod is killed.

    Args:
        settings: the engine.
        host: address to listen on.
        port: 0 takes a free one.
        ready: called with the URL once requests are accepted.

    Raises:
        OSError: the address cannot be had.
    """
    app = application(settings)
    async with _stop_signal() as stop, _listening(app, host, port) as url:
        if ready is not None:
            ready(url)
        steps = app[_STEPS]
        await asyncio.wait((stop, steps), return_when=asyncio.FIRST_COMPLETED)
        if steps.done():
            await steps  # an engine that fails ends the process with its error


@contextlib.asynccontextmanager
async def _listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Run an application; give its URL."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        bound_host, bound_port = runner.addresses[0][:2]
        yield f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}"
    finally:
        await runner.cleanup()


def _inference_routes(service: Service) -> list[web.RouteDef]:
    return [
        web.post("/v1/chat/completions", Endpoint(service, ChatBody, ChatReply).handle),
        web.post("/v1/completions", Endpoint(service, CompletionBody, CompletionReply).handle),
        web.post("/v1/messages", Endpoint(service, MessagesBody, MessagesReply).handle),
        web.post("/v1/responses", Endpoint(service, ResponsesBody, ResponsesReply).handle),
        web.post("/v1/embeddings", Endpoint(service, EmbeddingBody, EmbeddingReply).handle),
        web.post("/v1/score", Endpoint(service, ScoreBody, ScoreReply).handle),
        web.post("/v1/rerank", Endpoint(service, RerankBody, RerankReply).handle),
        web.post("/generate", Endpoint(service, TgiBody, TgiReply).handle),
        web.post("/generate_stream", Endpoint(service, TgiStreamBody, TgiReply).handle),
    ]


def _stepping(engine: Engine) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return the context in which an application's engine steps."""

    async def context(app: web.Application) -> AsyncIterator[None]:
        app[_STEPS] = steps = asyncio.create_task(engine.run(), name="engine steps")
        yield
        steps.cancel()
        await asyncio.wait({steps})

    return context


def _stopping(engine: Engine) -> Callable[[web.Application], Awaitable[None]]:
    """Return what ends open answers, so that aiohttp has nothing to wait for."""

    async def stop(_app: web.Application) -> None:
        engine.stop()

    return stop


@web.middleware
async def _word_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Word errors that no endpoint has worded: FastAPI's form for routing, OpenAI's for the rest."""
    try:
        return await handler(request)
    except ApiError as error:
        return json_response(Reply.error(error), status=error.status)
    except web.HTTPException as error:
        response = json_response({"detail": error.reason}, status=error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


@contextlib.asynccontextmanager
async def _stop_signal() -> AsyncIterator[asyncio.Future[None]]:
    """Give a future that SIGTERM or SIGINT completes."""
    loop = asyncio.get_running_loop()
    stop = loop.create_future()
    heard = []
    for name in (signal.SIGTERM, signal.SIGINT):
        # Outside the main thread signals cannot be heard; there the caller cancels us.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(name, _complete, stop)
            heard.append(name)
    try:
        yield stop
    finally:
        for name in heard:
            loop.remove_signal_handler(name)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
