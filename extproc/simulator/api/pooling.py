"""POST /v1/embeddings, /v1/score and /v1/rerank: endpoints that compute prompts and generate nothing."""

from __future__ import annotations

import base64
from array import array
from random import Random
from typing import Any, ClassVar, Literal

from typing_extensions import override

from extproc.simulator.api.body import Body
from extproc.simulator.api.completions import one_or_many
from extproc.simulator.api.reply import Reply, usage
from extproc.simulator.text import TokenCounter

_EMBEDDING_DIMENSIONS = 16


class EmbeddingBody(Body):
    """Texts to place in a space of few dimensions."""

    input: str | list[int] | list[str] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return tuple(map(count.prompt, one_or_many(self.input)))


class EmbeddingReply(Reply[EmbeddingBody]):
    """One vector a text, the same for the same text."""

    id_prefix: ClassVar = "embd-"

    @override
    def whole(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "list",
            "created": self.created,
            "model": self.model,
            "data": [
                {"index": index, "object": "embedding", "embedding": self._embedding(prompt)}
                for index, prompt in enumerate(one_or_many(self.body.input))
            ],
            "usage": usage(self.generation.prompt_tokens, 0, prompt_tokens_details=None),
        }

    def _embedding(self, prompt: str | list[int]) -> list[float] | str:
        draw = Random(str(prompt))
        vector = array("f", (draw.uniform(-1, 1) for _ in range(_EMBEDDING_DIMENSIONS)))
        if self.body.encoding_format == "base64":
            return base64.b64encode(vector.tobytes()).decode()
        return vector.tolist()


class ScoreBody(Body):
    """A text to compare with one or several others."""

    text_1: str
    text_2: str | list[str]

    @property
    def others(self) -> list[str]:
        """The texts to compare with."""
        return [self.text_2] if isinstance(self.text_2, str) else self.text_2

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return tuple(count.prompt(self.text_1 + other) for other in self.others)


class ScoreReply(Reply[ScoreBody]):
    """How alike the texts are."""

    id_prefix: ClassVar = "score-"

    @override
    def whole(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "list",
            "created": self.created,
            "model": self.model,
            "data": [
                {"index": index, "object": "score", "score": likeness(self.body.text_1, other)}
                for index, other in enumerate(self.body.others)
            ],
            "usage": usage(self.generation.prompt_tokens, 0, prompt_tokens_details=None),
        }


class RerankBody(Body):
    """Documents to order by what they have to do with a query."""

    query: str
    documents: list[str]
    top_n: int = 0  # all

    @override
    def prompts(self, count: TokenCounter) -> tuple[int, ...]:
        return tuple(count.prompt(self.query + document) for document in self.documents)


class RerankReply(Reply[RerankBody]):
    """The documents, most relevant first."""

    id_prefix: ClassVar = "rerank-"

    @override
    def whole(self) -> dict[str, Any]:
        scores = [likeness(self.body.query, document) for document in self.body.documents]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        tokens = self.generation.prompt_tokens
        return {
            "id": self.id,
            "model": self.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": [
                {
                    "index": index,
                    "document": {"text": self.body.documents[index]},
                    "relevance_score": scores[index],
                }
                for index in order[: self.body.top_n or None]
            ],
        }


def likeness(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, 0 to 1 (Jaccard)."""
    mine, theirs = set(one.lower().split()), set(other.lower().split())
    return len(mine & theirs) / max(1, len(mine | theirs))
