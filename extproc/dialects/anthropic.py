"""Bodies of Anthropic's Messages API."""

from __future__ import annotations

from extproc.dialects.body import Dialect, InferenceBody
from extproc.dialects.content import add_content, add_json, add_messages
from extproc.dialects.fields import (
    JsonObject,
    array,
    engine_priority,
    flag,
    mapping,
    missing,
    model_name,
    output_limit,
    string,
)
from extproc.dialects.prompt import Part, Section, Turn


def read_messages(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/messages`. Its streams always carry the usage; it knows one answer only."""
    if fields.get("messages") is None:
        raise missing("messages")
    parts: list[Part] = []
    if tools := array(fields, "tools"):
        add_json(parts, Section.TOOLS, tools, "tools")
    schema = mapping(fields, "output_format") or mapping(fields, "output_config").get("format")
    if schema:
        add_json(parts, Section.RESPONSE_FORMAT, schema, "output_config.format")
    if fields.get("system") is not None:
        parts.append(Turn(Section.SYSTEM))
        add_content(parts, Section.SYSTEM, fields["system"], "system")
    add_messages(parts, array(fields, "messages"), "messages")
    return InferenceBody(
        model=model_name(fields),
        dialect=Dialect.ANTHROPIC,
        prompt=tuple(parts),
        max_output_tokens=output_limit(fields),
        is_streaming=flag(fields, "stream"),
        wants_usage=True,
        priority=engine_priority(fields),
        service_tier=string(fields, "service_tier"),
    )
