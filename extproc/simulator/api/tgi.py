"""POST /generate and /generate_stream, the dialect of Text Generation Inference."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from extproc.simulator.api.body import GenerationBody
from extproc.simulator.api.errors import ApiError
from extproc.simulator.api.reply import StreamingReply
from extproc.simulator.generation import Piece
from extproc.simulator.text import TokenCounter

_FINISH_REASONS = {"length": "length", "stop": "eos_token"}


class TgiParameters(BaseModel):
    """How to generate."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    max_new_tokens: int | None = 100
    details: bool = False


class TgiBody(GenerationBody):
    """A text to continue."""

    inputs: str
    parameters: TgiParameters = Field(default_factory=TgiParameters)

    @property
    @override
    def limit_tokens(self) -> int | None:
        return self.parameters.max_new_tokens

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return (count.prompt(self.inputs),)


class TgiStreamBody(TgiBody):
    """A text to continue token by token: the path asks for it, not a field."""

    stream: bool = True


class TgiReply(StreamingReply[TgiBody]):
    """A generated text, whole or token by token."""

    @override
    def whole(self) -> dict[str, Any]:
        answer = {"generated_text": self.text(self.generation.answers[0])}
        return answer | {"details": self._details()} if self.body.parameters.details else answer

    @override
    def piece(self, piece: Piece) -> bytes:
        is_last = piece.finish_reason is not None
        end = piece.start + piece.tokens
        token = {"id": end, "text": self.text_of(piece), "logprob": 0.0, "special": False}
        data = {
            "index": end,
            "token": token,
            "generated_text": self.text(self.generation.answers[0]) if is_last else None,
            "details": self._details() if is_last else None,
        }
        return b"data:%s\n\n" % orjson.dumps(data)

    @staticmethod
    @override
    def error(error: ApiError) -> dict[str, Any]:
        return {"error": error.message, "error_type": "overloaded" if error.status == 503 else "validation"}

    def _details(self) -> dict[str, Any]:
        (answer,) = self.generation.answers
        return {
            "finish_reason": _FINISH_REASONS[answer.finish_reason],
            "generated_tokens": answer.sequence.produced_tokens,
            "input_length": answer.sequence.prompt_tokens,
            "seed": None,
        }
