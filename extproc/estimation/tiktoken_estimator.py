"""The estimator: reads bodies and counts their tokens, off the event loop."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from extproc.dialects import BodyLimits, Endpoint, InferenceBody, read
from extproc.domain.errors import BodyTooLarge
from extproc.domain.tokens import Demand
from extproc.estimation.count_cache import CountCache
from extproc.estimation.encodings import ENCODING_NAMES, encoding_name, load
from extproc.estimation.lanes import Lane
from extproc.estimation.settings import EstimationSettings
from extproc.estimation.text_counter import TextCounter
from extproc.estimation.weighing import Weight, weigh

_SMALL_BATCH = 8  # at 0.1 ms each


class Appraisal(NamedTuple):
    """A body, read, and what it asks for."""

    body: InferenceBody
    demand: Demand


class TiktokenEstimator:
    """Appraises request bodies.

    Small bodies have a lane of their own, so that they never wait behind large ones; compressed ones are
    large, for nobody knows what is in them. When a lane is full, bodies in it are still read but weighed
    by size, which takes a third of the time, so that its line gets shorter and the answers worse.
    """

    def __init__(self, settings: EstimationSettings | None = None) -> None:
        self._settings = settings = settings or EstimationSettings()
        self._limits = BodyLimits(settings.max_body_bytes, settings.max_containers, settings.max_values)
        self.cache = CountCache(settings.cache_entries)
        self._counter = TextCounter(
            self.cache,
            exact_bytes=settings.exact_bytes,
            bytes_per_token=settings.bytes_per_token,
            cache_from_chars=settings.cache_from_chars,
        )
        self._small: Lane[Appraisal] = Lane(
            "estimate-small",
            threads=settings.small_threads,
            most_waiting=settings.small_waiting,
            batch=_SMALL_BATCH,
        )
        self._large: Lane[Appraisal] = Lane(
            "estimate-large", threads=settings.large_threads, most_waiting=settings.large_waiting
        )

    def warm_up(self) -> None:
        """Load all encodings (0.6 s, 120 MB), so that no request has to wait for it."""
        for name in ENCODING_NAMES:
            load(name)

    def close(self) -> None:
        """End the worker threads, after what they have begun."""
        self._small.close()
        self._large.close()

    async def appraise(self, endpoint: Endpoint, body: bytes, content_encoding: str = "") -> Appraisal:
        """Return what a request body asks for.

        Raises:
            BadRequest: the body cannot be understood.
            BodyTooLarge: it is larger than we read.
        """
        if len(body) > self._limits.body_bytes:
            raise BodyTooLarge(f"the body is larger than {self._limits.body_bytes} bytes")
        is_small = len(body) < self._settings.small_body_bytes and not content_encoding
        lane = self._small if is_small else self._large
        return await lane.run(
            partial(self._appraise, endpoint, body, content_encoding, counts=not lane.is_full)
        )

    def explain(self, endpoint: Endpoint, body: bytes, content_encoding: str = "") -> dict[str, Any]:
        """Return how the demand of a body comes about, ready for JSON. Blocks; for the command line."""
        read_body = read(endpoint, body, content_encoding, self._limits)
        weight = self._weigh(read_body, counts=True)
        return {
            "endpoint": endpoint.name,
            "dialect": read_body.dialect.value,
            "model": read_body.model,
            "encoding": encoding_name(read_body.model, self._settings.encodings),
            "body_bytes": len(body),
            "prompt_tokens": weight.prompt_tokens,
            "is_exact": weight.is_exact,
            "tokens_by_section": {section.value: tokens for section, tokens in weight.by_section.items()},
            "media": [{"kind": kind.value, "tokens": tokens} for kind, tokens in weight.media],
            "framing_tokens": weight.framing,
            "truncated_to_tokens": weight.bound,
            "prompts": read_body.prompts,
            "answers": read_body.answers,
            "max_output_tokens": read_body.max_output_tokens,
            "is_streaming": read_body.is_streaming,
        }

    def _appraise(self, endpoint: Endpoint, body: bytes, content_encoding: str, *, counts: bool) -> Appraisal:
        read_body = read(endpoint, body, content_encoding, self._limits)
        weight = self._weigh(read_body, counts=counts)
        return Appraisal(
            read_body,
            Demand(
                weight.prompt_tokens,
                read_body.max_output_tokens,
                answers=read_body.answers,
                prompts=read_body.prompts,
                is_exact=weight.is_exact,
            ),
        )

    def _weigh(self, body: InferenceBody, *, counts: bool) -> Weight:
        tokenizer = load(encoding_name(body.model, self._settings.encodings)) if counts else None
        return weigh(body, tokenizer, self._counter, self._settings)
