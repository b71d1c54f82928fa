"""How an endpoint words its answers: what the dialects have in common."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from extproc.simulator.api.body import Body, GenerationBody
from extproc.simulator.api.errors import ApiError
from extproc.simulator.generation import Answer, Generation, Piece
from extproc.simulator.text import text

SYSTEM_FINGERPRINT = "forebay-engine"

AnyBody = TypeVar("AnyBody", bound=Body)
AnyGenerationBody = TypeVar("AnyGenerationBody", bound=GenerationBody)


class Reply(ABC, Generic[AnyBody]):
    """The answer to one request, in the words of its endpoint.

    Attributes:
        id_prefix: how the endpoint's ids begin.
        id: of this answer.
        created: when, Unix seconds.
        model: the model as the client wrote it, or the default.
    """

    id_prefix: ClassVar = ""

    def __init__(self, body: AnyBody, *, model: str, generation: Generation) -> None:
        self.body = body
        self.model = model
        self.generation = generation
        self.id = self.id_prefix + secrets.token_hex(8)
        self.created = int(time.time())

    @abstractmethod
    def whole(self) -> Any:
        """Return the JSON of the complete answer."""

    @staticmethod
    def error(error: ApiError) -> dict[str, Any]:
        """Return the JSON of an error; OpenAI's form unless the dialect has one of its own."""
        return {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": error.param,
                "code": error.status,
            }
        }


class StreamingReply(Reply[AnyGenerationBody], ABC):
    """An answer that can also be told token by token, as server-sent events.

    Attributes:
        refuses_in_stream: whether a full queue answers a stream with 200 and an error event, as vLLM's
            OpenAI endpoints do, instead of with 503.
    """

    refuses_in_stream: ClassVar = False

    def preamble(self) -> bytes:
        """Return what is sent at once, before any token."""
        return b""

    def opening(self) -> bytes:
        """Return what goes before the first token."""
        return b""

    @abstractmethod
    def piece(self, piece: Piece) -> bytes:
        """Return the event for new tokens of one answer."""

    def closing(self) -> bytes:
        """Return what follows the last token."""
        return b""

    def text_of(self, piece: Piece) -> str:
        """Return what the tokens of a piece say."""
        return text(piece.start, piece.tokens, seed=self.generation.answers[piece.answer].number)

    @staticmethod
    def text(answer: Answer) -> str:
        """Return what a whole answer says."""
        return text(0, answer.sequence.produced_tokens, seed=answer.number)


def usage(prompt_tokens: int, completion_tokens: int, **more: Any) -> dict[str, Any]:
    """Return usage in OpenAI's words."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        **more,
    }
