"""Envoy's part of an exchange, spoken with Envoy's own types, and a gate in front of a real queue."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import betterproto2
from admission.world import BATCH, INTERACTIVE, World
from envoy_data_plane.envoy.config.core.v3 import HeaderMap, HeaderValue
from envoy_data_plane.envoy.service.ext_proc.v3 import (
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
    ProcessingResponse,
)
from envoy_data_plane.google.protobuf import Struct, Value

from extproc.dialects import Endpoint, read
from extproc.domain.forecast import Budget
from extproc.domain.outcome import Refusal
from extproc.domain.request import PriorityClass
from extproc.domain.response import Ended
from extproc.domain.tokens import Demand
from extproc.estimation import Appraisal
from extproc.processor.exchange import Exchange
from extproc.processor.gate import Gate, Identity, Pool

CHAT = "/v1/chat/completions"


def chat(tokens: int = 60, model: str = "llama-70b", **more: Any) -> bytes:
    """A body that asks for `tokens`, 10 of them the prompt's."""
    messages = [{"role": "user", "content": "a secret prompt"}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": tokens - 10, **more}).encode()


def headers(*, path: str = CHAT, is_last: bool = False, **named: str) -> bytes:
    found = {":path": path, ":method": "POST", **{k.replace("_", "-"): v for k, v in named.items()}}
    part = HttpHeaders(headers=_header_map(found), end_of_stream=is_last)
    return bytes(ProcessingRequest(request_headers=part))


def body(data: bytes, *, is_last: bool = True) -> bytes:
    return bytes(ProcessingRequest(request_body=HttpBody(body=data, end_of_stream=is_last)))


def whole(data: bytes, *, path: str = CHAT, is_last: bool = True, **named: str) -> bytes:
    """The recommended chain's one message: the body, path and some headers with it."""
    values = {"request.path": path} | {
        f"request.headers['{k.replace('_', '-')}']": v for k, v in named.items()
    }
    struct = Struct(fields={k: Value(string_value=v) for k, v in values.items()})
    part = HttpBody(body=data, end_of_stream=is_last)
    return bytes(ProcessingRequest(request_body=part, attributes={"envoy.filters.http.ext_proc": struct}))


def response_headers(status: int = 200, *, is_last: bool = False, **named: str) -> bytes:
    found = {":status": str(status), **{k.replace("_", "-"): v for k, v in named.items()}}
    part = HttpHeaders(headers=_header_map(found), end_of_stream=is_last)
    return bytes(ProcessingRequest(response_headers=part))


def response_body(data: bytes, *, is_last: bool = False) -> bytes:
    return bytes(ProcessingRequest(response_body=HttpBody(body=data, end_of_stream=is_last)))


def request_trailers() -> bytes:
    return bytes(ProcessingRequest(request_trailers=HttpTrailers()))


def response_trailers() -> bytes:
    return bytes(ProcessingRequest(response_trailers=HttpTrailers()))


def _header_map(named: dict[str, str]) -> HeaderMap:
    return HeaderMap(headers=[HeaderValue(key=k, raw_value=v.encode()) for k, v in named.items()])


class Reply:
    """One reply of ours, as Envoy reads it."""

    def __init__(self, data: bytes) -> None:
        self.message = ProcessingResponse.parse(data)
        self.kind, self.part = betterproto2.which_one_of(self.message, "response")

    @property
    def metadata(self) -> dict[str, str]:
        if self.message.dynamic_metadata is None:
            return {}
        fields = self.message.dynamic_metadata.fields["forebay"].struct_value.fields
        return {k: v.string_value for k, v in fields.items()}

    @property
    def headers(self) -> dict[str, str]:
        mutation = self.part.headers if self.kind == "immediate_response" else None
        if mutation is None and self.part.response is not None:
            mutation = self.part.response.header_mutation
        found = mutation.set_headers if mutation else []
        return {option.header.key: option.header.raw_value.decode() for option in found}

    @property
    def new_body(self) -> bytes | None:
        """What takes the place of the body that was answered."""
        mutation = self.part.response.body_mutation if self.part.response else None
        return None if mutation is None else mutation.body

    @property
    def status(self) -> int:
        return int(self.part.status.code)

    @property
    def error(self) -> Any:
        return json.loads(self.part.body)


class Inline:
    """An estimator that reads in place: 10 tokens of prompt for everybody."""

    def __init__(self) -> None:
        self.delay_s = 0.0

    async def appraise(self, endpoint: Endpoint, body: bytes, content_encoding: str = "") -> Appraisal:
        await asyncio.sleep(self.delay_s)
        found = read(endpoint, body, content_encoding)
        return Appraisal(found, Demand(10, found.max_output_tokens, found.answers))


class Ignorance:
    """A `Knowledge` of nobody."""

    def habits(self, model: str, tenant: str) -> None:
        return None

    def peers(self, model: str) -> tuple[()]:
        return ()


class Unread:
    """An `ExchangeObserver` that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def unmanaged(self) -> None:
        self.words.append("unmanaged")

    def refused_unread(self, refusal: Refusal, priority_class: PriorityClass) -> None:
        self.words.append(f"{refusal} {priority_class.name}")


class Stage:
    """A gate with one pool, `llama-70b`, in front of a world's admission.

    Args:
        world: whose admission.
        estimator: in place of `Inline`.
        identity: in place of one that trusts every header.
        pool: more fields of the pool.
    """

    def __init__(
        self, world: World, *, estimator: Any = None, identity: Identity | None = None, **pool: Any
    ) -> None:
        self.world = world
        self.estimator = estimator or Inline()
        self.observer = Unread()
        classes = {c.name: c for c in (INTERACTIVE, BATCH)}
        self.identity = identity or Identity(classes, INTERACTIVE, trusts_priority=True, trusts_tenant=True)
        self.ended: list[Ended] = []
        llama = Pool("llama", world.admission, 30.0, lambda: Budget(50, 100), Ignorance(), **pool)
        self.gate = Gate(
            self.estimator,
            lambda model: llama if model in ("llama-70b", None) else None,
            self.identity,
            self.ended.append,
        )

    def enter(self, *script: bytes) -> Actor:
        """Begin an exchange in which Envoy sends `script`, then waits."""
        actor = Actor()
        for data in script:
            actor.says(data)
        exchange = Exchange(self.gate, actor, self.observer)
        actor.task = asyncio.create_task(exchange.run())
        return actor


class Actor:
    """A `Transport`: Envoy's side of one exchange."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self._says: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._heard: asyncio.Queue[Reply] = asyncio.Queue()
        self.delay_s = 0.0

    def says(self, data: bytes | None) -> None:
        """Send one message; None half-closes."""
        self._says.put_nowait(data)

    async def hears(self) -> Reply:
        """Return the next reply."""
        return await asyncio.wait_for(self._heard.get(), 5)

    @property
    def has_heard_nothing(self) -> bool:
        return self._heard.empty()

    async def half_closes(self) -> None:
        """End the stream in peace and return when the exchange has ended."""
        self.says(None)
        await asyncio.wait_for(self.task, 5)

    async def resets(self) -> None:
        """Cancel the stream, as Envoy does after every exchange."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def receive(self) -> bytes | None:
        return await self._says.get()

    async def send(self, data: bytes) -> None:
        await asyncio.sleep(self.delay_s)
        self._heard.put_nowait(Reply(data))
