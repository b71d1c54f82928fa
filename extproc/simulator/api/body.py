"""What a request may ask: the fields the endpoints share, and reading them from the wire."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extproc.simulator.api.errors import invalid_fields, invalid_json
from extproc.simulator.text import TokenCounter


class Body(BaseModel, ABC):
    """A request for one or more prompts; fields that change nothing here are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str | None = None
    priority: int = 0

    @abstractmethod
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        """Return the tokens of each prompt."""


class GenerationBody(Body):
    """A request for answers to its prompts."""

    stream: bool = False
    n: int = Field(1, ge=1)
    min_tokens: int = Field(0, ge=0)
    ignore_eos: bool = False

    @property
    @abstractmethod
    def limit_tokens(self) -> int | None:
        """The most tokens one answer may have; None leaves it to the context."""


BodyT = TypeVar("BodyT", bound=BaseModel)


async def read(request: web.Request, body_type: type[BodyT]) -> BodyT:
    """Read a request's body; its content type does not matter.

    Raises:
        ApiError: it is not JSON, or a field is missing or of the wrong type.
    """
    try:
        return body_type.model_validate(_parse(await request.read()))
    except ValidationError as error:
        raise invalid_fields(error.errors(include_url=False)) from error


def _parse(raw: bytes) -> Any:
    """Return the JSON value of `raw`; slowly where it is not strict, as vLLM's parser is not either."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw.decode(errors="replace"))
        except json.JSONDecodeError as error:
            raise invalid_json(error) from error
