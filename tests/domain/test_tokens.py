from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.tokens import Demand, Estimate, estimate

counts = st.integers(0, 10**6)


def test_the_clients_limit_is_the_output_budget():
    assert estimate(Demand(10, 64), default_output_tokens=512) == Estimate(10, 64)


def test_without_a_limit_the_default_is_booked():
    assert estimate(Demand(10), default_output_tokens=512) == Estimate(10, 512)


def test_a_limit_of_zero_is_a_limit():
    assert estimate(Demand(10, 0), default_output_tokens=512) == Estimate(10, 0)


def test_every_answer_has_the_budget():
    assert estimate(Demand(10, 64, answers=3), default_output_tokens=512) == Estimate(10, 192)


def test_what_generates_nothing_books_its_prompt_alone():
    assert estimate(Demand(10, answers=0), default_output_tokens=512).reservation_tokens == 10


def test_the_context_cuts_the_budget_for_each_prompt_by_itself():
    one = estimate(Demand(900, 500), default_output_tokens=1, context_tokens=1000)
    four = estimate(Demand(3600, 500, answers=4, prompts=4), default_output_tokens=1, context_tokens=1000)
    assert one == Estimate(900, 100)
    assert four == Estimate(3600, 400)


def test_no_request_is_free():
    assert Estimate(0, 0).reservation_tokens == 1


@given(prompt=counts, limit=st.none() | counts, answers=st.integers(0, 8), context=st.none() | counts)
def test_a_reservation_covers_the_prompt_and_never_more_than_the_context_after_it(
    prompt, limit, answers, context
):
    cost = estimate(Demand(prompt, limit, answers=answers), default_output_tokens=512, context_tokens=context)
    assert cost.reservation_tokens >= max(1, cost.prompt_tokens)
    assert cost.output_tokens >= 0
    if context is not None:
        assert cost.output_tokens <= answers * max(0, context - prompt)
