from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.histogram import RATIO, SECONDS, TOKENS, Histogram, LogBins


def of(values, bins: LogBins = TOKENS) -> Histogram:
    counts: dict[int, int] = {}
    for value in values:
        number = bins.bin(value)
        counts[number] = counts.get(number, 0) + 1
    return Histogram(bins, counts)


def lognormal(median: float, sigma: float, number: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [max(1, round(draw.lognormvariate(0, sigma) * median)) for _ in range(number)]


@given(st.floats(1, 2**24), st.sampled_from([TOKENS, SECONDS, RATIO]))
def test_a_bin_stands_for_its_values_to_within_half_its_width(value, bins):
    bounded = min(max(value, bins.least), bins.most)
    width = 2 ** (1 / bins.per_octave)
    assert 1 / width <= bins.middle(bins.bin(value)) / bounded <= width


@given(st.floats(allow_nan=False, min_value=-1e300, max_value=1e300))
def test_what_is_beyond_the_bounds_counts_as_the_bound(value):
    assert RATIO.bin(RATIO.least) <= RATIO.bin(value) <= RATIO.bin(RATIO.most)


def test_the_mean_of_lengths_is_right_to_within_one_percent():
    values = lognormal(200, 0.9, 20_000)
    assert of(values).mean() == pytest.approx(statistics.mean(values), rel=0.01)


def test_a_cap_cuts_each_value():
    values = lognormal(200, 0.9, 20_000)
    expected = statistics.mean(min(v, 300) for v in values)
    assert of(values).mean(300) == pytest.approx(expected, rel=0.01)


def test_what_grows_evenly_is_held_half_in_the_mean():
    assert of([100] * 50).mean_held() == pytest.approx(of([100] * 50).mean() / 2)


def test_a_quantile_is_a_value_that_so_many_do_not_exceed():
    histogram = of(range(1, 1001))
    assert histogram.quantile(0.5) == pytest.approx(500, rel=0.1)
    assert histogram.quantile(1.0) == pytest.approx(1000, rel=0.1)
    assert histogram.quantile(0.0) == pytest.approx(1, rel=0.1)


def test_what_remains_is_counted_over_those_that_go_on():
    values = lognormal(200, 0.9, 20_000)
    expected = statistics.mean(v - 500 for v in values if v > 500)
    assert of(values).remaining(500) == pytest.approx(expected, rel=0.1)
    assert of([100] * 10).remaining(500) is None


def test_a_cap_ends_what_remains():
    assert of([1000] * 10).remaining(500, cap=600) == pytest.approx(100)
    assert of([1000] * 10).remaining(600, cap=600) is None


def test_a_shift_of_habits_differs_and_chance_does_not():
    before = of(lognormal(200, 0.9, 1500))
    assert of(lognormal(400, 0.9, 60, seed=2)).differs(before)
    assert not of(lognormal(200, 0.9, 60, seed=3)).differs(before)


def test_values_that_are_all_alike_differ_from_others_and_not_from_themselves():
    assert of([100] * 30).differs(of([200] * 30))
    assert not of([100] * 30).differs(of([100] * 30))
