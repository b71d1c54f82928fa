"""Habits made of lessons, as a store would keep them, without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from extproc.domain.habits import Habits
from extproc.domain.lesson import lesson
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended, Foresight
from extproc.domain.tokens import Usage


def foresight(
    *, counted: int = 100, expected: int = 0, limit: int | None = 1000, answers: int = 1, tenant: str = "acme"
) -> Foresight:
    return Foresight("llama", tenant, counted, counted, expected, limit, answers)


def ended(
    output: int | None,
    seen: Foresight | None = None,
    *,
    ticket: str = "t-1",
    prompt: int | None = None,
    ending: Ending = Ending.COMPLETE,
    priority_class: str = "interactive",
    body_bytes: int = 0,
    duration_s: float | None = None,
    first_byte_s: float | None = None,
    is_streaming: bool = False,
) -> Ended:
    return Ended(
        "pool",
        priority_class,
        ticket,
        ending,
        seen or foresight(),
        Usage(prompt, output) if output or prompt else None,
        body_bytes,
        duration_s,
        first_byte_s,
        is_streaming,
    )


def counters(responses: Iterable[Ended]) -> Counter[str]:
    """All that responses teach, with nothing faded."""
    summed: Counter[str] = Counter()
    for response in responses:
        taught = lesson(response, response.usage) if response.usage else None
        if taught is not None:
            summed.update(taught.counters)
    return summed


def habits(responses: Iterable[Ended], recent: Iterable[Ended] = ()) -> Habits:
    """Habits whose recent counters are of `recent`, which the lasting ones hold as well."""
    recent = list(recent)
    return Habits(counters(recent), counters([*responses, *recent]))
