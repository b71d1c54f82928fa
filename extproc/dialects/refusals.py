"""Error bodies as the client's own library expects them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson

from extproc.dialects.body import Dialect

# The libraries choose the exception class by status; people and other tools read these.
_OPENAI_TYPES: dict[int, str] = {
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
}
_ANTHROPIC_TYPES: dict[int, str] = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
_TGI_TYPES: dict[int, str] = {
    HTTPStatus.TOO_MANY_REQUESTS: "overloaded",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded",
}


def error_body(dialect: Dialect, *, status: int, message: str, param: str | None, code: str) -> bytes:
    """Return the JSON body of a refusal.

    Args:
        dialect: whose form it takes.
        status: HTTP status of the answer.
        message: for people.
        param: the field at fault, or None. Anthropic and TGI have no place for it but the message.
        code: for programs, one of `Refusal`. TGI has no place for it: `x-forebay-reason` tells.
    """
    if dialect is Dialect.OPENAI:
        return orjson.dumps({"error": _openai(status, message, param, code)})
    told = f"{param}: {message}" if param and param not in message else message
    if dialect is Dialect.ANTHROPIC:
        return orjson.dumps({"type": "error", "error": _anthropic(status, told, code)})
    return orjson.dumps({"error": told, "error_type": _TGI_TYPES.get(status, "validation")})


def _openai(status: int, message: str, param: str | None, code: str) -> dict[str, Any]:
    kind = _OPENAI_TYPES.get(status, "invalid_request_error")
    return {"message": message, "type": kind, "param": param, "code": code}


def _anthropic(status: int, message: str, code: str) -> dict[str, Any]:
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error")
    return {"type": kind, "message": message, "details": {"error_code": code}}
