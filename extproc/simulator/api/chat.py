"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from extproc.simulator.api.chunks import ChunkedBody, ChunkedReply
from extproc.simulator.api.sse import event
from extproc.simulator.generation import Answer
from extproc.simulator.text import TokenCounter


class ChatBody(ChunkedBody):
    """A conversation to continue."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    @override
    def limit_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return (count.chat(messages=self.messages, tools=self.tools),)


class ChatReply(ChunkedReply[ChatBody]):
    """A chat completion."""

    id_prefix: ClassVar = "chatcmpl-"
    kind: ClassVar = "chat.completion"
    chunk_kind: ClassVar = "chat.completion.chunk"

    @override
    def whole(self) -> dict[str, Any]:
        return super().whole() | {"prompt_logprobs": None, "prompt_token_ids": None}

    @override
    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": self.text(answer),
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": None,
            },
            "logprobs": None,
            "finish_reason": answer.finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }

    @override
    def chunk_choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": finish_reason,
            **({} if finish_reason is None else {"stop_reason": None}),
            "token_ids": None,
        }

    @override
    def opening(self) -> bytes:
        return b"".join(self._role(index) for index in range(len(self.generation.answers)))

    def _role(self, index: int) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        no_prompt = {"prompt_token_ids": None, "prompt_text": None}
        return event(self._chunk([choice]) | self.running_usage(0) | no_prompt)
