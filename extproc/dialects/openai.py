"""Bodies of OpenAI's endpoints, and of those that vLLM and its peers put beside them."""

from __future__ import annotations

from typing import Any

from extproc.dialects.body import Dialect, InferenceBody
from extproc.dialects.content import add_content, add_json, add_messages, add_prompts
from extproc.dialects.fields import (
    MAX_ANSWERS,
    JsonObject,
    answers_each,
    array,
    engine_priority,
    flag,
    mapping,
    missing,
    model_name,
    output_limit,
    string,
    whole,
    wrong,
)
from extproc.dialects.prompt import Part, Section, Turn, Unseen, repeated


def read_chat(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/chat/completions`."""
    if fields.get("messages") is None:
        raise missing("messages")
    parts: list[Part] = []
    _add_tools(parts, fields)
    _add_schema(parts, mapping(fields, "response_format").get("json_schema"), "response_format.json_schema")
    if documents := array(fields, "documents"):
        add_json(parts, Section.DOCUMENTS, documents, "documents")
    add_messages(parts, array(fields, "messages"), "messages")
    return _generation(fields, parts, wants_usage=_wants_usage(fields))


def read_completion(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/completions`; `prompt` may be a string, token ids, or an array of either."""
    parts: list[Part] = []
    prompts = add_prompts(parts, Section.PROMPT, fields.get("prompt"), "prompt")
    add_content(parts, Section.PROMPT, string(fields, "suffix"), "suffix")
    if fields.get("prompt_embeds") is not None:
        parts.append(Unseen(Section.PROMPT))
    return _generation(fields, parts, prompts=prompts, wants_usage=_wants_usage(fields))


def read_response(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/responses`."""
    parts: list[Part] = []
    _add_tools(parts, fields)
    _add_schema(parts, mapping(fields, "text").get("format"), "text.format")
    add_content(parts, Section.SYSTEM, fields.get("instructions"), "instructions")
    parts.extend(
        Unseen(Section.MESSAGES)
        for name in ("previous_response_id", "conversation", "prompt")
        if fields.get(name) is not None
    )
    given = fields.get("input")
    if isinstance(given, list):
        add_messages(parts, given, "input")
    elif given is not None:
        if not isinstance(given, str):
            raise wrong("input", "a string or an array", given)
        parts.append(Turn(Section.MESSAGES))
        add_content(parts, Section.MESSAGES, given, "input")
    return _generation(fields, parts, wants_usage=True)


def read_embedding(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/embeddings`; vLLM also takes `messages`."""
    parts: list[Part] = []
    if fields.get("input") is None and fields.get("messages") is None:
        raise missing("input")
    prompts = add_prompts(parts, Section.PROMPT, fields.get("input"), "input")
    add_messages(parts, array(fields, "messages"), "messages")
    return _pooling(fields, parts, prompts)


def read_score(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/score`: pairs of texts, one to many or one to one."""
    left = _first(fields, "text_1", "queries", "data_1")
    right = _first(fields, "text_2", "documents", "items", "data_2")
    return _pairs(fields, left, right)


def read_rerank(fields: JsonObject) -> InferenceBody:
    """Read a body of `/v1/rerank`: one query against each document."""
    return _pairs(fields, ("query", fields.get("query")), _first(fields, "documents", "texts"))


def _pairs(fields: JsonObject, left: tuple[str, Any], right: tuple[str, Any]) -> InferenceBody:
    """A cross-encoder reads each pair as one prompt, so that a lone left side is read with every right one.

    A bi-encoder reads it once only; the difference is one query per document.
    """
    lefts: list[Part] = []
    rights: list[Part] = []
    left_count = add_prompts(lefts, Section.PROMPT, left[1], left[0])
    pairs = max(left_count, add_prompts(rights, Section.DOCUMENTS, right[1], right[0]))
    if left_count == 1:
        lefts = repeated(lefts, pairs)
    return _pooling(fields, lefts + rights, pairs)


def _first(fields: JsonObject, *names: str) -> tuple[str, Any]:
    return next(((name, fields[name]) for name in names if fields.get(name) is not None), (names[0], None))


def _generation(
    fields: JsonObject, parts: list[Part], *, prompts: int = 1, wants_usage: bool
) -> InferenceBody:
    return InferenceBody(
        model=model_name(fields),
        dialect=Dialect.OPENAI,
        prompt=tuple(parts),
        prompts=prompts,
        truncate_tokens=_truncation(fields),
        max_output_tokens=output_limit(fields),
        answers=min(prompts * answers_each(fields), MAX_ANSWERS),
        is_streaming=flag(fields, "stream"),
        wants_usage=wants_usage,
        priority=engine_priority(fields),
        service_tier=string(fields, "service_tier"),
    )


def _pooling(fields: JsonObject, parts: list[Part], prompts: int) -> InferenceBody:
    return InferenceBody(
        model=model_name(fields),
        dialect=Dialect.OPENAI,
        prompt=tuple(parts),
        prompts=prompts,
        truncate_tokens=_truncation(fields),
        answers=0,
        priority=engine_priority(fields),
    )


def _add_tools(parts: list[Part], fields: JsonObject) -> None:
    for name in ("tools", "functions"):
        if tools := array(fields, name):
            add_json(parts, Section.TOOLS, tools, name)


def _add_schema(parts: list[Part], schema: Any, param: str) -> None:
    if isinstance(schema, dict):
        add_json(parts, Section.RESPONSE_FORMAT, schema, param)


def _wants_usage(fields: JsonObject) -> bool:
    return flag(mapping(fields, "stream_options"), "include_usage", within="stream_options.")


def _truncation(fields: JsonObject) -> int | None:
    """Return vLLM's `truncate_prompt_tokens`; its -1 means the model's own length, which bounds nothing."""
    limit = whole(fields, "truncate_prompt_tokens", least=-1)
    return None if limit == -1 else limit
