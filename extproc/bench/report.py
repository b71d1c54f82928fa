"""Percentiles by class, of one run or of two side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from extproc.bench.result import OK, Result, Sample

PERMILLES = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}
"""The percentiles reported, in thousandths: integers, so that a rank is exact."""

_METRICS: dict[str, Callable[[Sample], float | None]] = {
    "queue wait": lambda sample: sample.queue_wait_s,
    "first token": lambda sample: sample.ttft_s,
    "whole answer": lambda sample: sample.e2e_s,
}
_LATE_MS = 10.0
_ALL = "all"


def percentile(ordered: Sequence[float], permille: int) -> float | None:
    """Return the smallest value that `permille` thousandths of all do not exceed (the nearest rank).

    It is a value that was seen, never one in between. None where no value lies beyond it: then it would be
    nothing but the largest (p999 takes a thousand values).

    Args:
        ordered: ascending.
        permille: 1 to 999.
    """
    if len(ordered) * (1000 - permille) < 1000:
        return None
    return ordered[(len(ordered) * permille + 999) // 1000 - 1]


@dataclass(frozen=True, slots=True)
class Summary:
    """One class of a run.

    Attributes:
        priority_class: its name.
        requests: sent.
        ok_per_s: whole answers to the requests of one second.
        outcomes: how many ended how, the most frequent first.
        percentiles_ms: by metric and percentile, of whole answers alone; None where too few.
    """

    priority_class: str
    requests: int
    ok_per_s: float
    outcomes: dict[str, int]
    percentiles_ms: dict[str, dict[str, float | None]]


def summarise(result: Result) -> list[Summary]:
    """Return a summary of each class, and of all together where there are several."""
    names = list(dict.fromkeys(sample.priority_class for sample in result.samples))
    groups = {name: [s for s in result.samples if s.priority_class == name] for name in sorted(names)}
    if len(groups) > 1:
        groups[_ALL] = list(result.samples)
    return [_summarise(name, samples, result.duration_s) for name, samples in groups.items()]


def _summarise(name: str, samples: list[Sample], duration_s: float) -> Summary:
    answered = [sample for sample in samples if sample.outcome == OK]
    return Summary(
        priority_class=name,
        requests=len(samples),
        ok_per_s=len(answered) / duration_s,
        outcomes=dict(Counter(sample.outcome for sample in samples).most_common()),
        percentiles_ms={
            metric: _percentiles_ms([v for s in answered if (v := value(s)) is not None])
            for metric, value in _METRICS.items()
        },
    )


def _percentiles_ms(values_s: list[float]) -> dict[str, float | None]:
    ordered = sorted(value * 1000 for value in values_s)
    return {name: percentile(ordered, permille) for name, permille in PERMILLES.items()}


def lateness_ms(result: Result) -> dict[str, float | None]:
    """Return how late the generator sent: what it adds to every figure it reports."""
    return _percentiles_ms([sample.late_s for sample in result.samples])


def as_json(result: Result) -> dict[str, Any]:
    """Return the report for other programs."""
    return {
        "started_at": result.started_at,
        "duration_s": result.duration_s,
        "options": result.options,
        "classes": summarise(result),
        "generator_late_ms": lateness_ms(result),
    }


def show(result: Result) -> Group:
    """Return the report for people."""
    table = _table("requests", "ok/s", "milliseconds", *PERMILLES)
    notes = []
    for summary in summarise(result):
        head = [summary.priority_class, str(summary.requests), f"{summary.ok_per_s:.1f}"]
        for metric, percentiles in _measured(summary):
            table.add_row(*head, metric, *map(_number, percentiles.values()))
            head = ["", "", ""]
        table.add_section()
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in summary.outcomes.items())
        notes.append(Text(f"{summary.priority_class}: {outcomes}"))
    return Group(table, *notes, _lateness(result))


def compare(before: Result, after: Result) -> Table:
    """Return a table of what both runs have: before, after, and how many times as much."""
    table = _table("figure", "before", "after", "ratio")
    old = {summary.priority_class: summary for summary in summarise(before)}
    for new in summarise(after):
        if (was := old.get(new.priority_class)) is None:
            continue
        name = new.priority_class
        for (figure, earlier), later in zip(_figures(was).items(), _figures(new).values(), strict=True):
            if earlier is not None and later is not None:
                ratio = f"x{later / earlier:.2f}" if earlier else "-"
                table.add_row(name, figure, _number(earlier), _number(later), ratio)
                name = ""
        table.add_section()
    return table


def _figures(summary: Summary) -> dict[str, float | None]:
    percentiles = {
        f"{metric} {name}, ms": value
        for metric, found in summary.percentiles_ms.items()
        for name, value in found.items()
    }
    return {"ok/s": summary.ok_per_s, **percentiles}


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("class")
    for column in columns:
        table.add_column(column, justify="left" if column in ("milliseconds", "figure") else "right")
    return table


def _measured(summary: Summary) -> list[tuple[str, dict[str, float | None]]]:
    """Return the metrics of which there is something to show, or the last, so that no class goes missing."""
    metrics = list(summary.percentiles_ms.items())
    return [m for m in metrics if any(v is not None for v in m[1].values())] or metrics[-1:]


def _lateness(result: Result) -> Text:
    late = {name: value for name, value in lateness_ms(result).items() if value is not None}
    text = "generator late by " + ", ".join(f"{value:.1f} ms ({name})" for name, value in late.items())
    if max(late.values(), default=0) <= _LATE_MS:
        return Text(text, style="dim")
    return Text(f"{text}: its machine is busy, and the figures are the client's own in part", style="yellow")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
