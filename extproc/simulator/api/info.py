"""What an engine says of itself: models, health, metrics, and what the simulator alone can tell."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web
from prometheus_client import generate_latest
from typing_extensions import override

from extproc.simulator.api.body import Body, read
from extproc.simulator.api.endpoint import Service, json_response
from extproc.simulator.api.messages import MessagesBody
from extproc.simulator.telemetry import Telemetry
from extproc.simulator.text import TokenCounter

MODELLED_VLLM = "0.32.0"  # the release whose answers and metrics were recorded


class TokenizeBody(Body):
    """A prompt or a conversation whose tokens are to be counted."""

    prompt: str = ""
    messages: list[dict[str, Any]] | None = None

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return (count.prompt(self.prompt) if self.messages is None else count.chat(messages=self.messages),)


class CountTokensBody(MessagesBody):
    """A conversation whose tokens are to be counted."""

    max_tokens: int = 1


class Info:
    """The endpoints that compute nothing."""

    def __init__(self, service: Service, telemetry: Telemetry) -> None:
        self._service = service
        self._telemetry = telemetry
        self._started = int(time.time())

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and what serves them."""
        return [
            web.get("/v1/models", self.models),
            web.get("/health", self.health),
            web.get("/ping", self.health),
            web.get("/version", self.version),
            web.get("/load", self.load),
            web.get("/metrics", self.metrics),
            web.post("/tokenize", self.tokenize),
            web.post("/v1/messages/count_tokens", self.count_tokens),
            web.get("/sim/arrivals", self.arrivals),
            web.get("/sim/state", self.state),
        ]

    async def models(self, _request: web.Request) -> web.Response:
        """List the served names."""
        listed = [self._model(name) for name in self._service.settings.names]
        return json_response({"object": "list", "data": listed})

    async def health(self, _request: web.Request) -> web.Response:
        """Say whether the engine lives."""
        return web.Response(status=503 if self._service.engine.is_stopped else 200)

    async def version(self, _request: web.Request) -> web.Response:
        """Name the vLLM that is modelled."""
        return json_response({"version": MODELLED_VLLM})

    async def load(self, _request: web.Request) -> web.Response:
        """Count the sequences in the engine, waiting ones included."""
        return json_response({"server_load": self._service.engine.requests})

    async def metrics(self, _request: web.Request) -> web.Response:
        """Expose the metrics as text."""
        body = generate_latest(self._telemetry.registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Count the tokens of a prompt or a conversation; the ids themselves mean nothing."""
        body = await read(request, TokenizeBody)
        count = sum(body.prompts(self._service.count))
        return json_response(
            {
                "count": count,
                "max_model_len": self._service.settings.context_tokens,
                "tokens": list(range(count)),
                "token_strs": None,
            }
        )

    async def count_tokens(self, request: web.Request) -> web.Response:
        """Count the tokens of a conversation in Anthropic's words."""
        body = await read(request, CountTokensBody)
        return json_response({"input_tokens": sum(body.prompts(self._service.count))})

    async def arrivals(self, _request: web.Request) -> web.Response:
        """List the latest arrivals."""
        return json_response(self._service.journal.dump())

    async def state(self, _request: web.Request) -> web.Response:
        """Show what runs, waits and is held."""
        return json_response(self._service.engine.state())

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
            "max_model_len": self._service.settings.context_tokens,
            "permission": [],
        }
