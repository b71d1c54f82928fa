"""What one response teaches: increments of named counters, the form in which the store keeps habits.

A tenant's habits with one model are counters by name. Those of a histogram are called `series|bin`; a series
is named by its kind and the cell of requests it is about, so that coarser cells are sums of finer ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from extproc.domain.histogram import BYTES, RATIO, SECONDS, TOKENS, LogBins
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended, Foresight
from extproc.domain.tokens import Usage

LESSONS = "n"
"""Counts lessons; when it reaches a bound, the store halves all counters, which is how habits fade."""

OUTPUT, PROMPT, PACE, BYTES_STREAMED, BYTES_WHOLE, ERROR = "o", "r", "s", "b", "w", "x"
EXPECTED_OUTPUT, ACTUAL_OUTPUT, EXPECTED_PROMPT, ACTUAL_PROMPT = "eo", "ao", "ep", "ap"

BINS: dict[str, LogBins] = {
    OUTPUT: TOKENS,  # tokens of one answer
    PROMPT: RATIO,  # the engine's count of a prompt over ours
    PACE: SECONDS,  # from one token of an answer to the next
    BYTES_STREAMED: BYTES,  # of a streamed response, for each token
    BYTES_WHOLE: BYTES,  # of a response in one piece, for each token
    ERROR: LogBins(per_octave=4, least=1 / 1024, most=1024),  # output over what was expected
}

_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one response taught.

    Attributes:
        ticket: the request's name in the cluster: the store takes one lesson from each.
        model: the model
        tenant: whose habits they are.
        counters: increments by name.
    """

    ticket: str
    model: str
    tenant: str
    counters: dict[str, int]


def limit_bucket(max_output_tokens: int | None) -> int:
    """Return which requests are alike in their limit: a bucket is a factor of 4 wide."""
    return _UNLIMITED if max_output_tokens is None else max(0, max_output_tokens).bit_length() // 2


def prompt_bucket(counted_tokens: int) -> int:
    """Return which requests are alike in their prompt: a bucket is a factor of 4 wide."""
    return max(0, counted_tokens).bit_length() // 2


def output_series(priority_class: str, foresight: Foresight) -> str:
    """Return the finest series that a request's output belongs to."""
    limit, prompt = limit_bucket(foresight.max_output_tokens), prompt_bucket(foresight.counted_tokens)
    return f"{OUTPUT}:{limit}:{prompt}:{priority_class}"


def lesson(ended: Ended, usage: Usage) -> Lesson | None:
    """Return what a response teaches, or None where it teaches nothing.

    An answer teaches its length only when it came to its own end: one that was cut off would make answers
    look short. Its prompt was read all the same.

    Args:
        ended: the response.
        usage: what it took, as the engine reports it or as its size tells.
    """
    foresight = ended.foresight
    if foresight is None:
        return None
    counters: dict[str, int] = {}
    if usage.prompt_tokens and foresight.counted_tokens > 0:
        series = f"{PROMPT}:{prompt_bucket(foresight.counted_tokens)}"
        _count(counters, series, usage.prompt_tokens / foresight.counted_tokens)
        counters[EXPECTED_PROMPT], counters[ACTUAL_PROMPT] = foresight.prompt_tokens, usage.prompt_tokens
    if usage.output_tokens and foresight.answers > 0 and ended.ending is Ending.COMPLETE:
        _count_output(counters, ended, foresight, usage.output_tokens)
        if not usage.is_guess:  # a guess is no measure of other guesses
            _compare(counters, ended, foresight, usage.output_tokens)
    return (
        Lesson(ended.ticket, foresight.model, foresight.tenant, {LESSONS: 1} | counters) if counters else None
    )


def _count_output(counters: dict[str, int], ended: Ended, foresight: Foresight, output_tokens: int) -> None:
    answer_tokens = output_tokens / foresight.answers
    _count(counters, output_series(ended.priority_class, foresight), answer_tokens)
    if ended.duration_s and answer_tokens >= 2:
        decoding_s = ended.duration_s - (ended.first_byte_s or 0.0 if ended.is_streaming else 0.0)
        _count(counters, PACE, decoding_s / answer_tokens)


def _compare(counters: dict[str, int], ended: Ended, foresight: Foresight, output_tokens: int) -> None:
    if foresight.output_tokens > 0:
        _count(counters, ERROR, output_tokens / foresight.output_tokens)
        counters[EXPECTED_OUTPUT], counters[ACTUAL_OUTPUT] = foresight.output_tokens, output_tokens
    if ended.body_bytes:
        series = BYTES_STREAMED if ended.is_streaming else BYTES_WHOLE
        _count(counters, series, ended.body_bytes / output_tokens)


def _count(counters: dict[str, int], series: str, value: float) -> None:
    counters[f"{series}|{BINS[series[0]].bin(value)}"] = 1
