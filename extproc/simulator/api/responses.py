"""POST /v1/responses, OpenAI's newer dialect, as far as one text answer goes."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar

from typing_extensions import override

from extproc.simulator.api.body import GenerationBody
from extproc.simulator.api.reply import StreamingReply
from extproc.simulator.api.sse import event
from extproc.simulator.generation import Piece
from extproc.simulator.text import TokenCounter


class ResponsesBody(GenerationBody):
    """A text or a conversation to respond to."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    max_output_tokens: int | None = None

    @property
    @override
    def limit_tokens(self) -> int | None:
        return self.max_output_tokens

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return (count.chat(messages=self.input, tools=self.tools, system=self.instructions),)


class ResponsesReply(StreamingReply[ResponsesBody]):
    """A response, whole or in numbered events."""

    id_prefix: ClassVar = "resp_"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._item_id = "msg_" + secrets.token_hex(8)
        self._events = 0

    @override
    def whole(self) -> dict[str, Any]:
        is_cut = self.generation.answers[0].finish_reason == "length"
        return self._response(
            status="incomplete" if is_cut else "completed",
            incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
            output=[self._item()],
            usage=self._usage(),
        )

    @override
    def preamble(self) -> bytes:
        begun = self._response(status="in_progress", incomplete_details=None, output=[], usage=None)
        return self._event("created", response=begun) + self._event("in_progress", response=begun)

    @override
    def opening(self) -> bytes:
        item = self._item() | {"content": [], "status": "in_progress"}
        part = _part("") | {"logprobs": []}
        return self._event("output_item.added", item=item, output_index=0) + self._event(
            "content_part.added", part=part, **self._place()
        )

    @override
    def piece(self, piece: Piece) -> bytes:
        return self._event("output_text.delta", delta=self.text_of(piece), logprobs=[], **self._place())

    @override
    def closing(self) -> bytes:
        text = self._text
        return b"".join(
            (
                self._event("output_text.done", text=text, logprobs=[], **self._place()),
                self._event("content_part.done", part=_part(text), **self._place()),
                self._event("output_item.done", item=self._item(), output_index=0),
                self._event("completed", response=self.whole()),
            )
        )

    @property
    def _text(self) -> str:
        return self.text(self.generation.answers[0])

    def _event(self, name: str, **fields: Any) -> bytes:
        kind = f"response.{name}"
        encoded = event({**fields, "sequence_number": self._events, "type": kind}, kind)
        self._events += 1
        return encoded

    def _place(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self._item_id, "output_index": 0}

    def _item(self) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "content": [_part(self._text)],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        }

    def _response(self, **fields: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": self.created,
            "instructions": self.body.instructions,
            "metadata": None,
            "model": self.model,
            "object": "response",
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self.body.max_output_tokens,
            "service_tier": "auto",
            "truncation": "disabled",
            **fields,
        }

    def _usage(self) -> dict[str, Any]:
        read, written = self.generation.prompt_tokens, self.generation.output_tokens
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        }


def _part(text: str) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
