from __future__ import annotations

import dataclasses

import pytest
from domain.learnt import ended, foresight
from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.lesson import LESSONS, lesson, limit_bucket, prompt_bucket
from extproc.domain.outcome import Ending
from extproc.domain.tokens import Usage


def taught(response) -> set[str]:
    found = lesson(response, response.usage)
    return {name.split("|")[0] for name in found.counters} if found else set()


def test_a_complete_response_teaches_its_length_and_its_prompt():
    response = ended(50, foresight(expected=40), prompt=120, body_bytes=9_000, duration_s=2.0)
    assert taught(response) == {"n", "o:5:3:interactive", "r:3", "w", "s", "x", "eo", "ao", "ep", "ap"}


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.COMPLETE])
def test_an_answer_that_was_cut_off_does_not_teach_its_length(ending):
    assert taught(ended(50, prompt=120, ending=ending)) == {"n", "r:3", "ep", "ap"}


def test_a_guess_teaches_the_length_and_measures_nothing():
    response = ended(50, foresight(expected=40), body_bytes=9_000)
    found = lesson(response, Usage(output_tokens=50, is_guess=True))
    assert {name.split("|")[0] for name in found.counters} == {"n", "o:5:3:interactive"}


def test_without_foresight_there_is_no_lesson():
    response = dataclasses.replace(ended(50), foresight=None)
    assert lesson(response, Usage(1, 1)) is None


def test_a_response_that_took_nothing_teaches_nothing():
    assert lesson(ended(50), Usage(0, 0)) is None


def test_the_length_is_that_of_one_answer():
    response = ended(300, foresight(answers=3))
    assert lesson(response, response.usage).counters["o:5:3:interactive|26"] == 1  # 2 ** (26 / 4) is 91


def test_what_generates_nothing_teaches_its_prompt_alone():
    assert taught(ended(5, foresight(answers=0), prompt=120)) == {"n", "r:3", "ep", "ap"}


@given(st.integers(0, 2**62))
def test_buckets_are_a_factor_of_four_wide(number):
    assert prompt_bucket(4 * number + 3) == prompt_bucket(number) + 1
    assert limit_bucket(number) == prompt_bucket(number)
    assert limit_bucket(None) < 0


@given(
    output=st.integers(0, 2**62),
    prompt=st.integers(0, 2**62),
    body_bytes=st.integers(0, 2**62),
    duration_s=st.none() | st.floats(0, 1e9),
    first_byte_s=st.none() | st.floats(0, 1e9),
    is_streaming=st.booleans(),
    counted=st.integers(0, 2**62),
    expected=st.integers(0, 2**62),
    limit=st.none() | st.integers(0, 2**62),
    answers=st.integers(0, 1000),
)
def test_whatever_is_reported_is_a_lesson_or_none(
    *, output, prompt, counted, expected, limit, answers, **more
):
    seen = foresight(counted=counted, expected=expected, limit=limit, answers=answers)
    response = ended(output, seen, prompt=prompt, **more)
    found = lesson(response, Usage(prompt, output))
    if found is not None:
        assert found.counters[LESSONS] == 1
        assert all(isinstance(count, int) for count in found.counters.values())
