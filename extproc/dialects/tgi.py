"""Bodies of `/generate`: TGI's, and SGLang's, which shares the path."""

from __future__ import annotations

from extproc.dialects.body import Dialect, InferenceBody
from extproc.dialects.content import add_prompts, add_text
from extproc.dialects.fields import (
    MAX_ANSWERS,
    JsonObject,
    answers_each,
    engine_priority,
    flag,
    mapping,
    missing,
    model_name,
    output_limit,
    whole,
)
from extproc.dialects.prompt import MediaKind, Part, Section


def read_generate(fields: JsonObject) -> InferenceBody:
    """Read a body of `/generate`."""
    parts: list[Part] = []
    within = "sampling_params" if "sampling_params" in fields else "parameters"
    parameters = mapping(fields, within)
    prompts = _add_inputs(parts, fields)
    return InferenceBody(
        model=model_name(fields),
        dialect=Dialect.TGI,
        prompt=tuple(parts),
        prompts=prompts,
        truncate_tokens=whole(parameters, "truncate", within=f"{within}."),
        max_output_tokens=output_limit(parameters, within=f"{within}."),
        answers=min(prompts * answers_each(parameters, within=f"{within}."), MAX_ANSWERS),
        is_streaming=flag(fields, "stream"),
        priority=engine_priority(fields),
    )


def _add_inputs(parts: list[Part], fields: JsonObject) -> int:
    """Add TGI's `inputs`, where data URIs are images, or SGLang's `text` or `input_ids`."""
    if fields.get("inputs") is not None:
        add_text(parts, Section.PROMPT, fields["inputs"], "inputs", data_uri=MediaKind.IMAGE)
        return 1
    name = next((name for name in ("text", "input_ids") if fields.get(name) is not None), None)
    if name is None:
        raise missing("inputs")
    return add_prompts(parts, Section.PROMPT, fields[name], name)
