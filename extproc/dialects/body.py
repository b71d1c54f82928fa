"""What admission needs to know of a request body, in whichever dialect it came."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from extproc.dialects.prompt import Part


class Dialect(StrEnum):
    """Who taught the client to speak, and hence how it reads a refusal."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    TGI = "tgi"


@dataclass(frozen=True, slots=True)
class InferenceBody:
    """A request body, read.

    Attributes:
        model: as the client wrote it; None where it named none (TGI serves one model and has no field).
        prompt: parts in the order in which the engine will see them.
        prompts: prompts of a batch, at least 1; the parts of all are in `prompt`.
        truncate_tokens: tokens to which the engine cuts each prompt, or None.
        max_output_tokens: the larger of the limits the client gave for one answer, or None.
        answers: answers generated side by side over all prompts; 0 where nothing is generated.
        is_streaming: the answer comes as server-sent events.
        wants_usage: a stream will end with the usage, asked for or as the dialect has it.
        priority: vLLM's, lower is earlier, or None.
        service_tier: OpenAI's or Anthropic's, or None.
    """

    model: str | None
    dialect: Dialect
    prompt: tuple[Part, ...]
    prompts: int = 1
    truncate_tokens: int | None = None
    max_output_tokens: int | None = None
    answers: int = 1
    is_streaming: bool = False
    wants_usage: bool = False
    priority: int | None = None
    service_tier: str | None = None
