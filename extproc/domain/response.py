"""A response that is over: what was foreseen of it, and how it came out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from extproc.domain.outcome import Ending
from extproc.domain.tokens import Usage


class UsageSource(StrEnum):
    """Where a pool's true token counts come from."""

    ACCESS_LOG = "access_log"
    STREAM = "stream"  # the responses themselves, as they pass
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Foresight:
    """What was foreseen of one request when it was admitted; it travels with the request, and comes back.

    Attributes:
        model: as the client wrote it.
        tenant: of the request.
        counted_tokens: tokens of the prompt as our tokenizer counts them.
        prompt_tokens: tokens of the prompt as the engine was expected to count them.
        output_tokens: output expected, of all answers.
        max_output_tokens: the limit of one answer, from the client or the context; None where there is none.
        answers: how many answers were asked for.
    """

    model: str
    tenant: str
    counted_tokens: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int | None
    answers: int


@dataclass(frozen=True, slots=True)
class Ended:
    """One managed response that is over.

    Attributes:
        pool: of the request.
        priority_class: of the request.
        ticket: the request's name in the cluster.
        ending: why it ended.
        foresight: None where the log entry does not carry it.
        usage: what the engine reports; None where it reports nothing, as for a stream that was not asked to.
        body_bytes: size of the response's body on the wire.
        duration_s: from the admission to the response's end; None when unknown.
        first_byte_s: from the admission to the response's first byte; None when unknown.
        is_streaming: the response is an event stream.
    """

    pool: str
    priority_class: str
    ticket: str
    ending: Ending
    foresight: Foresight | None = None
    usage: Usage | None = None
    body_bytes: int = 0
    duration_s: float | None = None
    first_byte_s: float | None = None
    is_streaming: bool = False
