"""The error bodies of vLLM 0.32, as recorded from it where a test says so, else by analogy."""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError
from typing import Any

from pydantic_core import ErrorDetails


class ApiError(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, message: str, *, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param


def invalid_json(error: JSONDecodeError) -> ApiError:
    """The body is not JSON."""
    details = {
        "type": "json_invalid",
        "loc": f"body.{error.pos}",
        "msg": "JSON decode error",
        "input": _shown({}),
        "ctx": {"error": error.msg},
    }
    return _validation([details])


def invalid_fields(errors: Sequence[ErrorDetails]) -> ApiError:
    """Fields of the body are missing or of the wrong type."""
    return _validation(
        [
            {
                "type": error["type"],
                "loc": ".".join(("body", *map(str, error["loc"]))),
                "msg": error["msg"],
                "input": _shown(error["input"]),
            }
            for error in errors
        ]
    )


def unknown_model(model: str, known: Sequence[str]) -> ApiError:
    """The model is not served here."""
    message = f"The model `{model}` does not exist. Valid aliases: {', '.join(known)}."
    return ApiError(404, message, kind="NotFoundError", param="model")


def bad_request(message: str, *, param: str, value: object) -> ApiError:
    """A field has a value that cannot be served."""
    return ApiError(400, f"{message} (parameter={param}, value={value})", kind="BadRequestError", param=param)


def too_many_output_tokens(max_tokens: int, context_tokens: int) -> ApiError:
    """The output limit alone is larger than the context."""
    return bad_request(
        f"max_tokens={max_tokens} cannot be greater than max_model_len={context_tokens}."
        " Please request fewer output tokens.",
        param="max_tokens",
        value=max_tokens,
    )


def prompt_too_long(context_tokens: int) -> ApiError:
    """The prompt leaves no room for an answer. vLLM stops counting one token past the context."""
    counted = context_tokens + 1
    return bad_request(
        f"This model's maximum context length is {context_tokens} tokens. However, your prompt contains"
        f" at least {counted} input tokens, which exceeds this limit even without any output tokens."
        " Please reduce the length of the input prompt.",
        param="input_tokens",
        value=counted,
    )


def context_exceeded(prompt_tokens: int, max_tokens: int, context_tokens: int) -> ApiError:
    """Prompt and output limit together are longer than the context."""
    return bad_request(
        f"This model's maximum context length is {context_tokens} tokens. However, you requested {max_tokens}"
        f" output tokens and your prompt contains {prompt_tokens} input tokens, together"
        f" {prompt_tokens + max_tokens}. Please reduce one or the other.",
        param="input_tokens",
        value=prompt_tokens,
    )


def busy(reason: str) -> ApiError:
    """A queue limit is reached."""
    why = {
        "max_num_queued_reqs": "is currently busy and cannot accept new requests",
        "max_num_queued_tokens": "has reached its prefill token backlog limit",
    }[reason]
    return unavailable(f"The engine {why}. Please try again later or on a different instance.")


def unavailable(message: str) -> ApiError:
    """The engine cannot answer."""
    return ApiError(503, message, kind="Service Unavailable")


def _validation(details: list[dict[str, Any]]) -> ApiError:
    count = f"{len(details)} validation error{'s' if len(details) > 1 else ''}"
    lines = "".join(f"\n  {detail}" for detail in details)
    return ApiError(400, f"{count}:{lines}", kind="Bad Request", param=details[0]["loc"])


def _shown(value: Any) -> Any:
    """Return an input as vLLM quotes it: never the contents of a container."""
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    return value
