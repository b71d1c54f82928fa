"""What `bench/estimates.py` shows, in small: the same code with one or two engines for two or three minutes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

BENCH = Path(__file__).parents[2] / "bench"


class Bench(NamedTuple):
    """The scripts' modules, which are no package."""

    estimates: ModuleType
    scenarios: ModuleType

    def row(self, world, policy_name, *, engines=2, seconds=120.0):
        policy = next(p for p in self.estimates.POLICIES if p.name == policy_name)
        return self.estimates.replay(world, policy, engines=engines, seconds=seconds)


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCH))
    try:
        import estimates
        import estimates_scenarios
    finally:
        sys.path.remove(str(BENCH))
    return Bench(estimates, estimates_scenarios)


def test_learned_reservations_let_engines_do_a_quarter_more_with_long_answers(bench):
    limit, learned = (
        bench.row(bench.estimates.LONG, name, seconds=150.0) for name in ("limit", "learned, 85 % of KV")
    )
    assert learned.tokens_per_s >= 1.25 * limit.tokens_per_s
    assert learned.preemptions <= 0.01 * learned.requests


def test_learned_reservations_gain_with_short_answers_what_a_known_length_would(bench):
    """More than x1.21 of `limit` not even an oracle gains: compute is what runs out."""
    limit, learned = (bench.row(bench.estimates.SATURATED, name) for name in ("limit", "learned"))
    assert learned.tokens_per_s >= 1.2 * limit.tokens_per_s
    assert learned.preemptions <= 0.01 * learned.requests
    assert learned.stored_error < 0.1


def test_while_there_is_room_what_is_booked_is_what_requests_come_to_hold(bench):
    assert bench.row(bench.estimates.BUSY, "learned").final_error < 0.1


def test_a_replay_comes_out_the_same_again(bench):
    one, other = (bench.row(bench.estimates.SATURATED, "learned", engines=1, seconds=80.0) for _ in range(2))
    assert one == other


def test_a_tenant_whose_outputs_become_four_times_longer_is_followed_within_200_requests(bench):
    adapted = asyncio.run(bench.scenarios.longer_outputs(1, after=400))
    assert adapted.requests is not None
    assert adapted.requests <= 200


def test_a_poisoner_moves_no_estimate_of_a_tenant_that_is_known(bench):
    poison = asyncio.run(bench.scenarios.poisoned(1, requests=1_000))
    assert poison.poisoner[1] > 10 * poison.poisoner[0]
    assert poison.changed == 0


def test_a_newcomer_is_foreseen_like_one_of_those_known_and_never_like_the_poisoner(bench):
    """One more peer moves the median by one peer at most."""
    poison = asyncio.run(bench.scenarios.poisoned(1, requests=1_000))
    assert poison.newcomer[1] < 2 * poison.newcomer[0]


def test_another_tokenizer_is_learnt_to_3_percent(bench):
    assert asyncio.run(bench.scenarios.other_tokenizer(1)) < 0.03
