"""What OpenAI's two older endpoints have in common: chunks with choices, and usage at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override

from extproc.simulator.api.body import GenerationBody
from extproc.simulator.api.reply import SYSTEM_FINGERPRINT, StreamingReply, usage
from extproc.simulator.api.sse import DONE, HOLE, Template, event
from extproc.simulator.generation import Answer, Piece


class StreamOptions(BaseModel):
    """Which usage a stream carries; both or none, since continuous usage needs usage."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


class ChunkedBody(GenerationBody, ABC):
    """A request whose stream may carry usage."""

    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("Stream options can only be defined when `stream=True`.")
        return self


AnyChunkedBody = TypeVar("AnyChunkedBody", bound=ChunkedBody)


class ChunkedReply(StreamingReply[AnyChunkedBody], ABC):
    """A completion, whole or in chunks.

    Attributes:
        kind: the `object` of a whole completion.
        chunk_kind: the `object` of a chunk.
    """

    refuses_in_stream: ClassVar = True
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.body.stream_options or StreamOptions()
        self._has_usage = options.include_usage
        self._has_running_usage = options.include_usage and options.continuous_usage_stats
        self._templates: dict[int, Template] = {}

    @abstractmethod
    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        """Return one choice of the whole completion."""

    @abstractmethod
    def chunk_choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        """Return the choice of a chunk."""

    @override
    def whole(self) -> dict[str, Any]:
        answers = self.generation.answers
        total = self._usage(self.generation.output_tokens, prompt_tokens_details=None)
        return {
            **self._head(self.kind),
            "choices": [self.choice(index, answer) for index, answer in enumerate(answers)],
            "service_tier": None,
            "system_fingerprint": SYSTEM_FINGERPRINT,
            "usage": total | {"completion_tokens_details": None},
        }

    @override
    def piece(self, piece: Piece) -> bytes:
        text = self.text_of(piece)
        if piece.finish_reason is None and not self._has_running_usage:
            return self._template(piece.answer).fill(text)
        chunk = self._chunk([self.chunk_choice(piece.answer, text, piece.finish_reason)])
        if self._has_running_usage:
            chunk |= self.running_usage(piece.start + piece.tokens)
        elif not self._has_usage:
            chunk["system_fingerprint"] = SYSTEM_FINGERPRINT
        return event(chunk)

    @override
    def closing(self) -> bytes:
        if not self._has_usage:
            return DONE
        chunk = self._chunk([]) | {"usage": self._usage(self.generation.output_tokens)}
        return event(chunk | {"system_fingerprint": SYSTEM_FINGERPRINT}) + DONE

    def running_usage(self, completion_tokens: int) -> dict[str, Any]:
        """Return what a chunk says of usage so far, where the client asked for it."""
        if not self._has_running_usage:
            return {}
        return {"usage": self._usage(completion_tokens, completion_tokens_details=None)}

    def _template(self, index: int) -> Template:
        if index not in self._templates:
            self._templates[index] = Template(event(self._chunk([self.chunk_choice(index, HOLE, None)])))
        return self._templates[index]

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head(self.chunk_kind), "choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _usage(self, completion_tokens: int, **more: Any) -> dict[str, Any]:
        return usage(self.generation.prompt_tokens, completion_tokens, **more)
