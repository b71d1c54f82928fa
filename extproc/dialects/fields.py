"""Typed fields of a parsed JSON object; a wrong type is a `BadRequest` that names the field.

Messages tell the field and the kind of value, never the value: it may be part of a prompt.
An absent field and a null are the same, as they are to the engines.
"""

from __future__ import annotations

from typing import Any

from extproc.domain.errors import BadRequest

JsonObject = dict[str, Any]

# Larger figures mean "as much as you have" and are cut here, so that answers x tokens stays an integer
# a double holds exactly (Redis computes in doubles).
MAX_TOKENS = 1 << 31
MAX_ANSWERS = 1 << 20

_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """Return what a JSON value is, in words."""
    return _KINDS[type(value)]


def wrong(param: str, expected: str, value: object) -> BadRequest:
    """Return the fault for a field of the wrong type."""
    return BadRequest(f"'{param}' must be {expected}, not {kind_of(value)}", param)


def missing(param: str) -> BadRequest:
    """Return the fault for a field no engine does without."""
    return BadRequest(f"'{param}' is required", param)


def whole(
    fields: JsonObject, key: str, *, least: int = 0, most: int = MAX_TOKENS, within: str = ""
) -> int | None:
    """Return an integer of at least `least`, cut to `most`, or None where absent.

    Raises:
        BadRequest: not a number, not whole, or below `least`. A float such as 16.0 is whole.
    """
    value = fields.get(key)
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise wrong(within + key, "an integer", value)
    if value < least:
        raise BadRequest(f"'{within}{key}' must be at least {least}", within + key)
    return min(value, most)


def string(fields: JsonObject, key: str) -> str | None:
    """Return a string, or None where absent."""
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong(key, "a string", value)
    return value


def flag(fields: JsonObject, key: str, *, within: str = "") -> bool:
    """Return a boolean; absent is False."""
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong(within + key, "a boolean", value)
    return bool(value)


def array(fields: JsonObject, key: str) -> list[Any]:
    """Return an array; absent is empty."""
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(key, "an array", value)
    return value


def mapping(fields: JsonObject, key: str) -> JsonObject:
    """Return an object; absent is empty."""
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(key, "an object", value)
    return value


def model_name(fields: JsonObject) -> str | None:
    """Return the model; an empty name is none, as it is to vLLM."""
    return string(fields, "model") or None


def engine_priority(fields: JsonObject) -> int | None:
    """Return vLLM's `priority`, lower is earlier, or None."""
    return whole(fields, "priority", least=-MAX_TOKENS)


def output_limit(fields: JsonObject, *, within: str = "") -> int | None:
    """Return the larger of the limits given for one answer, or None.

    Engines disagree on which name wins, so the larger one is booked.
    """
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens")
    given = [limit for name in names if (limit := whole(fields, name, within=within)) is not None]
    return max(given, default=None)


def answers_each(fields: JsonObject, *, within: str = "") -> int:
    """Return how many answers each prompt gets: the larger of `n` and `best_of`, at least 1."""
    given = (whole(fields, name, least=1, most=MAX_ANSWERS, within=within) for name in ("n", "best_of"))
    return max(filter(None, given), default=1)
