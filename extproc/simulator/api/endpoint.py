"""One inference endpoint: from the HTTP request through the engine to the HTTP response."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from aiohttp import web

from extproc.simulator.api import errors
from extproc.simulator.api.body import Body, GenerationBody, read
from extproc.simulator.api.errors import ApiError
from extproc.simulator.api.faults import Fault, fault
from extproc.simulator.api.reply import Reply, StreamingReply
from extproc.simulator.api.sse import DONE, event
from extproc.simulator.engine import Engine, EngineBusy
from extproc.simulator.generation import EngineStopped, Generation, Work
from extproc.simulator.journal import Arrival, Journal
from extproc.simulator.settings import EngineSettings
from extproc.simulator.text import TokenCounter

_EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}

BodyT = TypeVar("BodyT", bound=Body)


@dataclass(frozen=True, slots=True)
class Service:
    """What all endpoints of one engine share."""

    settings: EngineSettings
    engine: Engine
    journal: Journal
    count: TokenCounter


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[BodyT]):
    """One path: what it reads and how it words the answer."""

    service: Service
    body_type: type[BodyT]
    reply_type: type[Reply[BodyT]]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; being cancelled, because the client left, aborts it in the engine."""
        arrival = self.service.journal.open(
            path=request.path, headers=request.headers, at=asyncio.get_running_loop().time()
        )
        try:
            response = await self._serve(request, arrival)
        except ApiError as error:
            arrival.ended = "error"
            return json_response(self.reply_type.error(error), status=error.status)
        except ConnectionResetError:  # the client left during a write, before aiohttp could cancel us
            return web.Response(status=499)
        else:
            arrival.ended = arrival.ended or "complete"
            return response
        finally:
            arrival.ended = arrival.ended or "aborted"

    async def _serve(self, request: web.Request, arrival: Arrival) -> web.StreamResponse:
        planned = fault(request.headers.get("x-sim-fault"))
        if planned.status is not None:
            raise ApiError(planned.status, "A planned fault.", kind="Planned Fault")
        body = await read(request, self.body_type)
        arrival.model = body.model
        work = self._work(body, request)
        arrival.prompt_tokens = sum(work.prompts)
        if planned.hangs:
            await asyncio.Event().wait()  # until the client leaves
        try:
            with self.service.engine.begin(work) as generation:
                try:
                    return await self._answer(request, body, generation, planned, arrival)
                finally:
                    arrival.output_tokens = generation.output_tokens
        except EngineBusy as full:
            return await self._refuse(request, body, errors.busy(full.reason), arrival)
        except EngineStopped as stopped:
            raise errors.unavailable("The engine has stopped.") from stopped

    async def _answer(
        self,
        request: web.Request,
        body: BodyT,
        generation: Generation,
        planned: Fault,
        arrival: Arrival,
    ) -> web.StreamResponse:
        model = body.model or self.service.settings.served_model
        reply = self.reply_type(body, model=model, generation=generation)
        if isinstance(reply, StreamingReply) and is_streaming(body):
            return await _stream(request, reply, planned, arrival)
        await generation.finished()
        response = json_response(reply.whole())
        if planned.reset_after_pieces is not None:
            return _drop(request, response, arrival)
        return response

    async def _refuse(
        self, request: web.Request, body: BodyT, error: ApiError, arrival: Arrival
    ) -> web.StreamResponse:
        """Refuse as vLLM does: with 503, or in a stream of the OpenAI dialect with 200 and an error event."""
        reply_type = self.reply_type
        if not (
            issubclass(reply_type, StreamingReply) and reply_type.refuses_in_stream and is_streaming(body)
        ):
            raise error
        arrival.ended = "error"
        response = web.StreamResponse(headers=_EVENT_STREAM)
        await response.prepare(request)
        await response.write_eof(event(reply_type.error(error)) + DONE)
        return response

    def _work(self, body: BodyT, request: web.Request) -> Work:
        """Return what the body asks of the engine.

        Raises:
            ApiError: it asks for what this engine cannot do.
        """
        settings = self.service.settings
        if body.model is not None and not settings.serves(body.model):
            raise errors.unknown_model(body.model, settings.models)
        prompts = body.prompts(self.service.count)
        exact = _whole_number(request, "x-sim-prompt-tokens")
        if exact is not None:
            prompts = (exact,) * len(prompts)
        limit = body.limit_tokens if isinstance(body, GenerationBody) else 0
        for prompt_tokens in prompts:
            _check_context(prompt_tokens, limit, settings.context_tokens)
        if not isinstance(body, GenerationBody):
            return Work(prompts, max_tokens=0, priority=body.priority)
        if limit is not None and limit < 1:
            raise errors.bad_request("max_tokens must be at least 1", param="max_tokens", value=limit)
        return Work(
            prompts,
            answers=body.n,
            max_tokens=limit,
            min_tokens=body.min_tokens,
            ignore_eos=body.ignore_eos,
            output_tokens=_whole_number(request, "x-sim-output-tokens"),
            priority=body.priority,
        )


async def _stream(
    request: web.Request, reply: StreamingReply[Any], planned: Fault, arrival: Arrival
) -> web.StreamResponse:
    """Tell the answer as it is made: one write a step, whatever grew in it."""
    response = web.StreamResponse(headers=_EVENT_STREAM)
    await response.prepare(request)
    if preamble := reply.preamble():
        await response.write(preamble)
    generation, head = reply.generation, reply.opening()
    left = planned.reset_after_pieces
    try:
        while pieces := await generation.pieces():
            payload = head + b"".join(map(reply.piece, pieces[:left]))
            head = b""
            if left is not None and len(pieces) >= left:
                await response.write(payload)
                return _drop(request, response, arrival)
            left = None if left is None else left - len(pieces)
            if generation.is_over:
                await response.write_eof(payload + reply.closing())
                break
            await response.write(payload)
    except EngineStopped:
        return _drop(request, response, arrival)
    return response


def _drop(request: web.Request, response: web.StreamResponse, arrival: Arrival) -> web.StreamResponse:
    """Close the connection where it stands: the client sees a response that was cut off."""
    arrival.ended = "error"
    if request.transport is not None:
        request.transport.abort()
    return response


def _check_context(prompt_tokens: int, max_tokens: int | None, context_tokens: int) -> None:
    if max_tokens is not None and max_tokens > context_tokens:
        raise errors.too_many_output_tokens(max_tokens, context_tokens)
    needed = 1 if max_tokens is None else max_tokens
    if prompt_tokens > context_tokens or (max_tokens is None and prompt_tokens == context_tokens):
        raise errors.prompt_too_long(context_tokens)
    if prompt_tokens + needed > context_tokens:
        raise errors.context_exceeded(prompt_tokens, needed, context_tokens)


def _whole_number(request: web.Request, header: str) -> int | None:
    """Return a header's value, 1 or more, or None where it is not sent.

    Raises:
        ApiError: it is sent and no whole number.
    """
    value = request.headers.get(header)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise errors.bad_request(f"{header} must be a whole number from 1", param=header, value=value)
    return int(value)


def is_streaming(body: Body) -> bool:
    """Whether the client asked for events."""
    return isinstance(body, GenerationBody) and body.stream


def json_response(data: Any, *, status: int = 200) -> web.Response:
    """Return a response with a JSON body."""
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")
