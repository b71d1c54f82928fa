"""What is known of how one tenant uses one model, read from the counters that its lessons left."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from extproc.domain.histogram import RATIO, TOKENS, Histogram
from extproc.domain.lesson import (
    ACTUAL_OUTPUT,
    ACTUAL_PROMPT,
    BINS,
    BYTES_STREAMED,
    BYTES_WHOLE,
    ERROR,
    EXPECTED_OUTPUT,
    EXPECTED_PROMPT,
    LESSONS,
    OUTPUT,
    PACE,
    PROMPT,
    limit_bucket,
    prompt_bucket,
)

MIN_SAMPLES = 20
"""Fewer values than this say nothing; a coarser cell is asked then (`docs/estimation.md`)."""

_TRUSTED_AFTER = 50  # lessons before a bias is called one
_MOST_BIAS = 1.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """Lengths of answers like the one that is asked for.

    Attributes:
        lengths: of one answer, tokens.
        cell: which requests they are of, in words.
        is_recent: only the last lessons were heard, for they differ from those before.
    """

    lengths: Histogram
    cell: str
    is_recent: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """How right the estimates were of late.

    Attributes:
        lessons: how many this rests on.
        output_bias: tokens generated over tokens expected; above 1 too few were expected. None when unknown.
        prompt_bias: the same for prompts.
        output_spread: ratio of the 90th to the 10th percentile of one answer's length over what was expected.
    """

    lessons: int
    output_bias: float | None
    prompt_bias: float | None
    output_spread: float | None

    @property
    def is_bad(self) -> bool:
        """True where so much more is generated than was expected that means may not be relied on."""
        return self.lessons >= _TRUSTED_AFTER and (self.output_bias or 1.0) > _MOST_BIAS


class _Counters:
    """Counters by name, as histograms and sums."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self.sums: dict[str, int] = {}
        self._series: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for name, count in counters.items():
            series, bar, number = name.rpartition("|")
            if bar:
                self._series[series][int(number)] = count
            else:
                self.sums[name] = count

    def histogram(self, series: str) -> Histogram:
        return Histogram(BINS[series[0]], self._series.get(series, {}))

    @cached_property
    def outputs(self) -> dict[tuple[str, ...], Histogram]:
        """Lengths by cell, from (limit, prompt, class) to (): every coarser cell is a sum of finer ones."""
        merged: defaultdict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
        for series, counts in self._series.items():
            if series.startswith(OUTPUT):
                _, limit, prompt, priority_class = series.split(":", 3)
                for cell in _cells(limit, prompt, priority_class):
                    merged[cell].update(counts)
        return {cell: Histogram(TOKENS, counts) for cell, counts in merged.items()}

    @cached_property
    def prompts(self) -> dict[str, Histogram]:
        """Prompt ratios by prompt bucket, and of all under the empty name."""
        found = {s[2:]: Histogram(RATIO, c) for s, c in self._series.items() if s.startswith(PROMPT)}
        return found | {"": Histogram.merged(found.values(), RATIO)}


def _cells(limit: str, prompt: str, priority_class: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a request, the finest first."""
    yield (priority_class, limit, prompt)
    yield (priority_class, limit)
    yield (priority_class,)
    yield ()


_CELL_NAMES = {3: "class, limit and prompt", 2: "class and limit", 1: "class", 0: "tenant and model"}


class Habits:
    """How one tenant uses one model.

    Two sets of counters fade at different speeds: the lasting one is exact, the recent one quick. The recent
    one is believed where the two differ by more than chance.

    Args:
        recent: counters of the last 50 to 100 lessons.
        lasting: counters of the last 1,000 to 2,000.
    """

    def __init__(self, recent: Mapping[str, int], lasting: Mapping[str, int]) -> None:
        self._recent, self._lasting = _Counters(recent), _Counters(lasting)

    @property
    def lessons(self) -> int:
        """Lessons they rest on; those that faded do not count."""
        return self._lasting.sums.get(LESSONS, 0)

    def outputs(
        self, priority_class: str, max_output_tokens: int | None, counted_tokens: int
    ) -> Evidence | None:
        """Return the lengths of answers to the most similar requests of which enough are known.

        The recent counters are too few to fill the finest cell. Whether habits have changed is asked of the
        finest cell of which they know enough; if they have, that cell's recent lengths are believed.
        """
        limit, prompt = str(limit_bucket(max_output_tokens)), str(prompt_bucket(counted_tokens))
        finest: Evidence | None = None
        for cell in _cells(limit, prompt, priority_class):
            lasting, recent = self._lasting.outputs.get(cell), self._recent.outputs.get(cell)
            if lasting is None or lasting.total < MIN_SAMPLES:
                continue
            finest = finest or Evidence(lasting, _CELL_NAMES[len(cell)], is_recent=False)
            if recent is not None and recent.total >= MIN_SAMPLES:
                has_changed = recent.differs(lasting)
                return Evidence(recent, _CELL_NAMES[len(cell)], is_recent=True) if has_changed else finest
        return finest

    def prompt_ratio(self, counted_tokens: int) -> float | None:
        """Return the engine's count of such prompts over ours, the median; None while too few are known.

        A change, such as of the engine's model, is looked for as with `outputs`.
        """
        finest: float | None = None
        for bucket in (str(prompt_bucket(counted_tokens)), ""):
            lasting, recent = self._lasting.prompts.get(bucket), self._recent.prompts.get(bucket)
            if lasting is None or lasting.total < MIN_SAMPLES:
                continue
            finest = lasting.quantile(0.5) if finest is None else finest
            if recent is not None and recent.total >= MIN_SAMPLES:
                return recent.quantile(0.5) if recent.differs(lasting) else finest
        return finest

    @cached_property
    def pace_s(self) -> float | None:
        """Seconds from one token of an answer to the next, the median; None while too few are known."""
        return self._median(PACE)

    def tokens_of(self, body_bytes: int, *, is_streaming: bool) -> int | None:
        """Return the output of a response that only its size tells of; None while too few are known."""
        bytes_per_token = self._median(BYTES_STREAMED if is_streaming else BYTES_WHOLE)
        return max(1, round(body_bytes / bytes_per_token)) if bytes_per_token and body_bytes else None

    @cached_property
    def calibration(self) -> Calibration:
        """How right the estimates were of late."""
        sums, errors = self._recent.sums, self._recent.histogram(ERROR)
        spread = errors.quantile(0.9) / errors.quantile(0.1) if errors.total >= MIN_SAMPLES else None
        return Calibration(
            lessons=sums.get(LESSONS, 0),
            output_bias=_ratio(sums.get(ACTUAL_OUTPUT, 0), sums.get(EXPECTED_OUTPUT, 0)),
            prompt_bias=_ratio(sums.get(ACTUAL_PROMPT, 0), sums.get(EXPECTED_PROMPT, 0)),
            output_spread=spread,
        )

    def _median(self, series: str) -> float | None:
        for counters in (self._recent, self._lasting):
            if (found := counters.histogram(series)).total >= MIN_SAMPLES:
                return found.quantile(0.5)
        return None


def _ratio(actual: int, expected: int) -> float | None:
    return actual / expected if expected > 0 and math.isfinite(actual) else None
