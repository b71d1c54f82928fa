"""Histograms over log-spaced bins: what the store keeps of lengths and ratios, and what they tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class LogBins:
    """Bins that grow with what they hold, so that all are as exact, relative to it.

    Attributes:
        per_octave: bins from any value to its double; 4 are 19 % wide.
        least: smaller values count as this.
        most: larger values count as this.
    """

    per_octave: int
    least: float
    most: float

    def bin(self, value: float) -> int:
        """Return the number of the bin of a value; it may be negative."""
        bounded = min(max(value, self.least), self.most)
        return math.floor(math.log2(bounded) * self.per_octave + 1e-9)

    def middle(self, number: int) -> float:
        """Return the value that stands for a bin: midway between its bounds."""
        return (2 ** (number / self.per_octave) + 2 ** ((number + 1) / self.per_octave)) / 2


TOKENS = LogBins(per_octave=4, least=1, most=2**24)
RATIO = LogBins(per_octave=32, least=1 / 16, most=16)
SECONDS = LogBins(per_octave=8, least=1e-5, most=1e3)
BYTES = LogBins(per_octave=8, least=1e-2, most=2**24)


class Histogram:
    """Counts by bin. The mean is off by 1 % or less for lengths, which spread over many bins."""

    def __init__(self, bins: LogBins, counts: Mapping[int, int]) -> None:
        self.bins = bins
        self.counts = counts

    @classmethod
    def merged(cls, parts: Iterable[Histogram], bins: LogBins) -> Histogram:
        """Return the sum of several histograms over the same bins."""
        counts: Counter[int] = Counter()
        for part in parts:
            counts.update(part.counts)
        return cls(bins, counts)

    @cached_property
    def total(self) -> int:
        """Values counted."""
        return sum(self.counts.values())

    @cached_property
    def _values(self) -> list[tuple[float, int]]:
        return [(self.bins.middle(number), count) for number, count in sorted(self.counts.items())]

    def mean(self, cap: float = math.inf) -> float:
        """Return the mean of the values, each at most `cap`. The histogram may not be empty."""
        return sum(min(value, cap) * count for value, count in self._values) / self.total

    def mean_held(self, cap: float = math.inf) -> float:
        """Return the mean over its life of what grows evenly to each value: E[v^2] / 2 E[v]."""
        if cap <= 0:
            return 0.0
        squares = sum(min(value, cap) ** 2 * count for value, count in self._values) / self.total
        return squares / (2 * self.mean(cap))

    def quantile(self, share: float) -> float:
        """Return the least value that is not exceeded by `share` of the values."""
        wanted, seen = share * self.total, 0
        for value, count in self._values:
            seen += count
            if seen >= wanted:
                return value
        return self._values[-1][0]

    def remaining(self, beyond: float, cap: float = math.inf) -> float | None:
        """Return how far values that exceed `beyond` exceed it, in the mean; None if none does."""
        longer = [(min(value, cap), count) for value, count in self._values if min(value, cap) > beyond]
        total = sum(count for _, count in longer)
        return sum((value - beyond) * count for value, count in longer) / total if total else None

    def differs(self, other: Histogram) -> bool:
        """Tell whether two histograms differ by more than chance: their mean logarithms, by three deviations.

        Lengths are about lognormal, so their logarithms are what a test of means may be applied to. One that
        is part of the other makes the test more careful than it looks.
        """
        (here, spread), (there, _) = self._logarithms, other._logarithms
        error = spread * math.sqrt(1 / self.total + 1 / other.total)
        return abs(here - there) > 3 * max(error, 0.1 / self.bins.per_octave)

    @cached_property
    def _logarithms(self) -> tuple[float, float]:
        """Mean and deviation of the values' binary logarithms; no deviation is less than a bin's own."""
        logs = [(math.log2(value), count) for value, count in self._values]
        mean = sum(log * count for log, count in logs) / self.total
        variance = sum((log - mean) ** 2 * count for log, count in logs) / self.total
        return mean, max(math.sqrt(variance), 0.29 / self.bins.per_octave)
