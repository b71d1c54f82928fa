"""POST /v1/completions."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from extproc.simulator.api.chunks import ChunkedBody, ChunkedReply
from extproc.simulator.generation import Answer
from extproc.simulator.text import TokenCounter

Prompts = str | list[int] | list[str] | list[list[int]]


class CompletionBody(ChunkedBody):
    """One text to continue, or several side by side; as text or as token ids."""

    prompt: Prompts
    max_tokens: int | None = 16

    @property
    @override
    def limit_tokens(self) -> int | None:
        return self.max_tokens

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return tuple(map(count.prompt, one_or_many(self.prompt)))


class CompletionReply(ChunkedReply[CompletionBody]):
    """A text completion."""

    id_prefix: ClassVar = "cmpl-"
    kind: ClassVar = "text_completion"
    chunk_kind: ClassVar = "text_completion"

    @override
    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        choice = self.chunk_choice(index, self.text(answer), answer.finish_reason)
        return choice | {"prompt_logprobs": None}

    @override
    def chunk_choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }


def one_or_many(prompts: Prompts) -> list[str | list[int]]:
    """Return the prompts of a field that holds one or several, as text or as token ids."""
    if isinstance(prompts, str):
        return [prompts]
    several = [prompt for prompt in prompts if not isinstance(prompt, int)]
    return several or [[token for token in prompts if isinstance(token, int)]]
