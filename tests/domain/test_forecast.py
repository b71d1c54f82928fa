from __future__ import annotations

import random

import pytest
from domain.learnt import ended, foresight, habits
from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.forecast import Budget, Reserve, foresee
from extproc.domain.tokens import Demand, Estimate

LIMITS = Budget(512, reserve=Reserve.LIMIT)
counts = st.integers(0, 10**6)


def like(length: int, number: int = 60, **more):
    """Habits of a tenant whose answers are all so long."""
    return habits(
        [], [ended(length, foresight(**more), ticket=f"t-{n}", duration_s=length / 50) for n in range(number)]
    )


def expected(demand: Demand, budget: Budget = LIMITS, known=None, peers=()) -> Estimate:
    return foresee(demand, "interactive", budget, known, peers).estimate


# --- nothing is known -----------------------------------------------------------------------------------


def test_the_clients_limit_is_the_output_budget():
    assert expected(Demand(10, 64)) == Estimate(10, 64)


def test_without_a_limit_the_default_is_booked():
    assert expected(Demand(10)) == Estimate(10, 512)


def test_a_limit_of_zero_is_a_limit():
    assert expected(Demand(10, 0)) == Estimate(10, 0)


def test_every_answer_has_the_budget():
    assert expected(Demand(10, 64, answers=3)) == Estimate(10, 192)


def test_what_generates_nothing_books_its_prompt_alone():
    assert expected(Demand(10, answers=0)).reservation_tokens == 10


def test_the_context_cuts_the_budget_for_each_prompt_by_itself():
    budget = Budget(1, 1000, Reserve.LIMIT)
    assert expected(Demand(900, 500), budget) == Estimate(900, 100)
    assert expected(Demand(3600, 500, answers=4, prompts=4), budget) == Estimate(3600, 400)


@given(
    prompt=counts,
    limit=st.none() | counts,
    answers=st.integers(0, 8),
    context=st.none() | counts,
    reserve=st.sampled_from(Reserve),
)
def test_a_reservation_covers_the_prompt_and_never_more_than_the_context_after_it(
    prompt, limit, answers, context, reserve
):
    cost = expected(Demand(prompt, limit, answers=answers), Budget(512, context, reserve), like(200))
    assert cost.reservation_tokens >= max(1, cost.prompt_tokens)
    assert cost.output_tokens >= 0
    if limit is not None:
        assert cost.output_tokens <= answers * limit
    if context is not None:
        assert cost.output_tokens <= answers * max(0, context - cost.prompt_tokens)


# --- something is known ---------------------------------------------------------------------------------


def test_the_mean_of_similar_answers_is_booked():
    found = foresee(Demand(100, 1000), "interactive", Budget(512), like(200))
    assert found.estimate.output_tokens == pytest.approx(200, rel=0.1)
    assert found.rule == "mean of similar answers"
    assert found.evidence is not None


def test_occupancy_is_half_of_what_all_alike_answers_hold_in_the_end():
    cost = expected(Demand(100, 1000), Budget(512, reserve=Reserve.OCCUPANCY), like(200))
    assert cost.output_tokens == pytest.approx(100, rel=0.1)


def test_the_limit_is_booked_where_the_pool_says_so():
    assert expected(Demand(100, 1000), LIMITS, like(200)).output_tokens == 1000


def test_no_answer_is_expected_to_pass_its_limit():
    assert expected(Demand(100, 50), Budget(512), like(200)).output_tokens == 50


def test_the_learned_ratio_applies_to_the_prompt():
    known = habits([ended(10, foresight(), prompt=140, ticket=f"t-{n}") for n in range(30)])
    assert expected(Demand(1000, 10), Budget(512), known).prompt_tokens == pytest.approx(1400, rel=0.03)


def test_estimates_that_were_far_too_low_become_careful():
    draw = random.Random(1)
    lengths = [round(200 * draw.lognormvariate(0, 0.8)) for _ in range(100)]
    known = habits([], [ended(n, foresight(expected=n // 2), ticket=f"t-{i}") for i, n in enumerate(lengths)])
    found = foresee(Demand(100, 10_000), "interactive", Budget(512), known)
    assert "90th percentile" in found.rule
    assert found.estimate.output_tokens == pytest.approx(sorted(lengths)[89], rel=0.2)


# --- of others ------------------------------------------------------------------------------------------


def test_a_newcomer_is_expected_to_be_like_the_median_tenant():
    peers = [like(100), like(200), like(90_000, limit=100_000)]
    found = foresee(Demand(100, 100_000), "interactive", Budget(512), None, peers)
    assert found.estimate.output_tokens == pytest.approx(200, rel=0.1)
    assert found.peers == 3


@pytest.mark.parametrize("absurd", [1, 900_000])
def test_one_tenant_moves_no_newcomer_beyond_its_neighbours(absurd):
    honest = [like(length) for length in (100, 150, 200, 250)]
    poisoner = like(absurd, limit=1_000_000)
    cost = expected(Demand(100, 1_000_000), Budget(512), None, [*honest, poisoner])
    assert 90 <= cost.output_tokens <= 220


def test_who_is_known_needs_no_peers():
    poisoner = like(900_000, limit=1_000_000)
    alone = expected(Demand(100, 1000), Budget(512), like(200))
    assert expected(Demand(100, 1000), Budget(512), like(200), [poisoner] * 9) == alone


# --- while it runs --------------------------------------------------------------------------------------


def test_an_answer_that_runs_on_is_expected_to_go_on():
    draw = random.Random(1)
    lengths = [max(2, round(200 * draw.lognormvariate(0, 0.9))) for _ in range(2000)]
    known = habits([], [ended(n, ticket=f"t-{i}", duration_s=n / 50) for i, n in enumerate(lengths)])
    found = foresee(Demand(100, 10_000), "interactive", Budget(512), known)
    expectation = found.expectation
    assert expectation is not None
    at_start = expectation.tokens_after(0.0)
    assert at_start == pytest.approx(found.estimate.reservation_tokens, rel=0.05)
    longer = [n for n in lengths if n > 500]
    assert expectation.tokens_after(10.0) - 100 == pytest.approx(sum(longer) / len(longer), rel=0.15)


def test_no_expectation_passes_the_limit():
    expectation = foresee(Demand(100, 300, answers=2), "interactive", Budget(512), like(200)).expectation
    assert expectation is not None
    assert expectation.tokens_after(1e6) == 100 + 2 * 300
