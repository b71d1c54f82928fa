"""Percentiles are values that were seen, and comparisons are of what both runs have."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from extproc.bench import BenchOptions, Result, Sample
from extproc.bench.report import as_json, compare, percentile, show, summarise
from extproc.bench.result import describe
from extproc.domain.errors import ConfigError


def sample(name="a", *, outcome="ok", e2e_s=1.0, wait_s=0.0, ttft_s=0.5, late_s=0.0):
    return Sample(name, 0.0, late_s, outcome, e2e_s, ttft_s, wait_s)


def result(*samples):
    return Result("2026-01-01T00:00:00+00:00", 10.0, describe(BenchOptions()), samples)


def text(renderable):
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_percentiles_of_one_to_a_thousand_are_their_ranks():
    values = [float(n) for n in range(1, 1001)]
    assert [percentile(values, p) for p in (500, 950, 990, 999)] == [500, 950, 990, 999]


def test_a_percentile_that_too_few_values_carry_is_not_given():
    assert percentile([1.0] * 999, 999) is None
    assert percentile([1.0] * 99, 990) is None
    assert percentile([1.0] * 100, 990) == 1.0
    assert percentile([], 500) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.integers(1, 999))
def test_a_percentile_is_a_value_that_was_seen_and_no_smaller_one_will_do(values, permille):
    ordered = sorted(values)
    found = percentile(ordered, permille)
    if found is not None:
        assert found in values
        assert sum(v <= found for v in values) * 1000 >= permille * len(values)
        assert sum(v < found for v in values) * 1000 < permille * len(values)


def test_only_whole_answers_have_latencies_but_every_request_is_counted():
    samples = [sample(e2e_s=1.0)] * 3 + [sample(outcome="429 queue_full", e2e_s=0.001)] * 7
    [summary] = summarise(result(*samples))
    assert summary.outcomes == {"429 queue_full": 7, "ok": 3}
    assert summary.percentiles_ms["whole answer"]["p50"] == 1000
    assert summary.ok_per_s == 0.3


def test_each_class_is_reported_and_all_together():
    summaries = summarise(result(*[sample("a")] * 2, *[sample("b")] * 4))
    assert [(s.priority_class, s.requests) for s in summaries] == [("a", 2), ("b", 4), ("all", 6)]


def test_a_report_names_classes_refusals_and_the_lateness_of_the_generator():
    shown = text(show(result(*[sample("urgent", late_s=0.02)] * 100, sample(outcome="503 no_backends"))))
    for words in ("urgent", "1 503 no_backends", "1,000.0", "20.0 ms (p99): its machine is busy"):
        assert words in shown


def test_a_report_of_nothing_can_be_shown():
    assert "generator" in text(show(result()))


def test_a_comparison_gives_ratios_of_what_both_have():
    before = result(*[sample(e2e_s=2.0)] * 20, *[sample("gone")] * 20)
    after = result(*[sample(e2e_s=0.5)] * 40)
    shown = text(compare(before, after))
    assert ["whole", "answer", "p50,", "ms", "2,000.0", "500.0", "x0.25"] in [
        line.split() for line in shown.splitlines()
    ]
    assert "x2.00" in shown  # answers in a second
    assert "gone" not in shown
    assert "p99" not in shown  # forty values do not carry it


def test_a_result_survives_its_file(tmp_path):
    saved = result(sample(), sample("b", outcome="timeout", ttft_s=None, wait_s=None))
    saved.save(tmp_path / "a.json")
    loaded = Result.load(tmp_path / "a.json")
    assert loaded.samples == saved.samples
    assert as_json(loaded)["classes"] == as_json(saved)["classes"]


def test_a_file_holds_no_header(tmp_path):
    options = BenchOptions(headers=(("authorization", "secret"),))
    replace(result(), options=describe(options)).save(tmp_path / "a.json")
    assert b"secret" not in (tmp_path / "a.json").read_bytes()
    assert "secret" not in repr(options)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 1}', orjson.dumps({"format": 0})])
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.json"):
        Result.load(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"b\.json: No such file"):
        Result.load(tmp_path / "b.json")
