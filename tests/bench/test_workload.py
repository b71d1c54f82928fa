"""What is sent is Poisson, mixed as asked, of the size asked, and the same for the same seed."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter

import orjson
import pytest

from extproc.bench import BenchOptions, ClassLoad
from extproc.bench.workload import arrivals, poisson
from extproc.domain.errors import ConfigError


def test_gaps_have_the_mean_and_the_spread_of_an_exponential_distribution():
    times = list(poisson(200, 100, random.Random(1)))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 200, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 200, rel=0.03)
    assert sum(gap > 3 / 200 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-3), rel=0.1)


def test_nothing_arrives_outside_of_the_run():
    times = list(poisson(50, 3, random.Random(2)))
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 3


def test_the_same_seed_sends_the_same_and_another_one_does_not():
    def run(seed):
        return [(a.at_s, a.body) for a in arrivals(BenchOptions(duration_s=5, seed=seed))]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_classes_come_in_their_shares_and_urls_in_turn():
    classes = (ClassLoad("a", 3), ClassLoad("b", 1))
    options = BenchOptions(
        urls=("http://x", "http://y"), classes=classes, rate_per_s=1000, duration_s=4, tenants=2
    )
    sent = list(arrivals(options))
    assert Counter(a.load.name for a in sent)["a"] / len(sent) == pytest.approx(0.75, abs=0.03)
    assert [a.url for a in sent[:4]] == ["http://x", "http://y", "http://x", "http://y"]
    assert {a.tenant for a in sent} == {"tenant-0", "tenant-1"}


def test_bodies_ask_for_what_the_class_says_and_share_no_prompt():
    [first, second] = list(arrivals(BenchOptions(classes=(ClassLoad("a", 1, 1000, 7),), duration_s=60)))[:2]
    body = orjson.loads(first.body)
    assert body["max_tokens"] == 7
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}
    prompts = [orjson.loads(a.body)["messages"][0]["content"] for a in (first, second)]
    assert prompts[0][:12] != prompts[1][:12]


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_a_prompt_has_the_tokens_asked_for(encoding):
    from extproc.estimation.encodings import load

    arrival = next(arrivals(BenchOptions(classes=(ClassLoad("a", 1, 1000),))))
    prompt = orjson.loads(arrival.body)["messages"][0]["content"]
    assert load(encoding).counts([prompt])[0] == pytest.approx(1000, abs=8)  # the number is a few more


@pytest.mark.parametrize("size", [400, 2_000, 900_000])
def test_a_body_has_exactly_the_size_asked_for(size):
    arrival = next(arrivals(BenchOptions(body_bytes=size)))
    assert len(arrival.body) == size
    orjson.loads(arrival.body)


def test_a_body_smaller_than_its_frame_is_refused():
    with pytest.raises(ConfigError, match="--body-bytes 10"):
        next(arrivals(BenchOptions(body_bytes=10)))


def test_a_class_is_written_as_name_share_and_lengths():
    assert ClassLoad.parse("a=2") == ClassLoad("a", 2)
    assert ClassLoad.parse("batch=0.2:4000:600") == ClassLoad("batch", 0.2, 4000, 600)


@pytest.mark.parametrize(
    "text", ["a", "a=", "=1", "a=0", "a=-1", "a=nan", "a=inf", "a=1:0", "a=1:2:3:4", "a=1:x"]
)
def test_any_other_writing_of_a_class_is_refused_with_its_text(text):
    with pytest.raises(ConfigError, match="--class " + text):
        ClassLoad.parse(text)


def test_a_header_that_is_none_is_refused_without_showing_it():
    assert BenchOptions.parse_headers(["authorization: Bearer a:b"]) == (("authorization", "Bearer a:b"),)
    with pytest.raises(ConfigError) as caught:
        BenchOptions.parse_headers(["sk-secret"])
    assert "secret" not in str(caught.value)
