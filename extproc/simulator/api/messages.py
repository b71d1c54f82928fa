"""POST /v1/messages, Anthropic's dialect."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from extproc.simulator.api.body import GenerationBody
from extproc.simulator.api.errors import ApiError
from extproc.simulator.api.reply import StreamingReply
from extproc.simulator.api.sse import HOLE, Template, event
from extproc.simulator.generation import Piece
from extproc.simulator.text import TokenCounter

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}
_ERROR_TYPES = {404: "not_found_error", 503: "overloaded_error"}


class MessagesBody(GenerationBody):
    """A conversation to continue."""

    messages: list[dict[str, Any]]
    max_tokens: int
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None

    @property
    @override
    def limit_tokens(self) -> int:
        return self.max_tokens

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return (count.chat(messages=self.messages, tools=self.tools, system=self.system),)


class MessagesReply(StreamingReply[MessagesBody]):
    """A message, whole or in events."""

    id_prefix: ClassVar = "chatcmpl-"  # vLLM turns the request into a chat completion and keeps its id
    _DELTA: ClassVar = Template(
        event(
            {
                "type": "content_block_delta",
                "delta": {"type": "text_delta", "text": HOLE},
                "index": 0,
            },
            "content_block_delta",
        )
    )

    @override
    def whole(self) -> dict[str, Any]:
        (answer,) = self.generation.answers
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": self.text(answer)}],
            "model": self.model,
            "stop_reason": self._stop_reason,
            "usage": self._usage(),
        }

    @override
    def opening(self) -> bytes:
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self.generation.prompt_tokens, "output_tokens": 0},
        }
        block = {"content_block": {"type": "text", "text": ""}, "index": 0}
        return _typed("message_start", {"message": message}) + _typed("content_block_start", block)

    @override
    def piece(self, piece: Piece) -> bytes:
        return self._DELTA.fill(self.text_of(piece))

    @override
    def closing(self) -> bytes:
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None}
        return (
            _typed("content_block_stop", {"index": 0})
            + _typed("message_delta", {"delta": delta, "usage": self._usage()})
            + _typed("message_stop", {})
        )

    @staticmethod
    @override
    def error(error: ApiError) -> dict[str, Any]:
        kind = _ERROR_TYPES.get(error.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}

    @property
    def _stop_reason(self) -> str:
        return _STOP_REASONS[self.generation.answers[0].finish_reason]

    def _usage(self) -> dict[str, int]:
        return {
            "input_tokens": self.generation.prompt_tokens,
            "output_tokens": self.generation.output_tokens,
        }


def _typed(kind: str, fields: dict[str, Any]) -> bytes:
    return event({"type": kind, **fields}, kind)
