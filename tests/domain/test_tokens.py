from __future__ import annotations

from extproc.domain.tokens import Estimate


def test_no_request_is_free():
    assert Estimate(0, 0).reservation_tokens == 1


def test_a_reservation_is_prompt_and_output():
    assert Estimate(10, 32).reservation_tokens == 42
