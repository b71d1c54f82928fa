"""From the bytes of a request body to an `InferenceBody`, whatever the bytes are."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from extproc.dialects.body import InferenceBody
from extproc.dialects.endpoints import Endpoint
from extproc.dialects.fields import JsonObject, kind_of
from extproc.dialects.inflate import inflate
from extproc.domain.errors import BadRequest, BodyTooLarge


class BodyLimits(NamedTuple):
    """How much of a body is read.

    Parsing holds the interpreter lock, so these bound how long one body can stop all others: 20 ms for
    16 MiB of text, 40 ms for a million numbers, 50 ms for 200,000 arrays.

    Attributes:
        body_bytes: size, compressed and not.
        containers: arrays and objects. Brackets in strings count too: they cannot be told apart before
            parsing, and a text with so many has more tokens than contexts have room for.
        values: members of arrays and objects, likewise with the commas in strings.
    """

    body_bytes: int = 16 << 20
    containers: int = 200_000
    values: int = 1_000_000


_DEFAULT_LIMITS = BodyLimits()


def read(
    endpoint: Endpoint, body: bytes, content_encoding: str = "", limits: BodyLimits = _DEFAULT_LIMITS
) -> InferenceBody:
    """Return what a body asks for.

    Unknown fields, nulls and unknown kinds of content are passed over; so is a missing model.

    Raises:
        BadRequest: not JSON, not an object, a wrong type, or an encoding we do not undo. Neither the
            message nor the chain of causes holds anything the client wrote.
        BodyTooLarge: beyond a limit.
    """
    plain = inflate(body, content_encoding, max_bytes=limits.body_bytes)
    _check_structure(plain, limits)
    fields = _parsed(plain)
    try:
        return endpoint.reader(fields)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _check_structure(plain: bytes, limits: BodyLimits) -> None:
    if len(plain) <= limits.containers:
        return
    if plain.count(b"[") + plain.count(b"{") > limits.containers:
        raise BodyTooLarge(f"the body holds more than {limits.containers} arrays and objects")
    if len(plain) > limits.values and plain.count(b",") > limits.values:
        raise BodyTooLarge(f"the body holds more than {limits.values} values")


def _parsed(plain: bytes) -> JsonObject:
    if not plain:
        raise BadRequest("the body is empty")
    problem = ""
    try:
        value = orjson.loads(plain)
    except orjson.JSONDecodeError as fault:
        # Raised below, outside the handler: the decoder's exception carries the whole document.
        problem = f"the body is not valid JSON: {fault.msg} at character {fault.pos}"
    if problem:
        raise BadRequest(problem)
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {kind_of(value)}")
    return value
