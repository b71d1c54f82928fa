from __future__ import annotations

import random

import pytest
from domain.learnt import ended, foresight, habits

from extproc.domain.habits import MIN_SAMPLES


def answers(length: int, number: int = 30, **more) -> list:
    return [ended(length, ticket=f"t-{n}", **more) for n in range(number)]


def test_the_finest_cell_with_enough_samples_is_asked():
    short = answers(50, seen=foresight(counted=20, limit=100))
    long = answers(800, seen=foresight(counted=5000, limit=4000))
    known = habits([*short, *long])
    found = known.outputs("interactive", 100, 20)
    assert found is not None
    assert found.cell == "class, limit and prompt"
    assert found.lengths.mean() == pytest.approx(50, rel=0.1)
    other_prompt = known.outputs("interactive", 100, 5000)
    assert other_prompt is not None
    assert (other_prompt.cell, other_prompt.lengths.total) == ("class and limit", 30)
    other_limit = known.outputs("interactive", 20, 20)
    assert other_limit is not None
    assert (other_limit.cell, other_limit.lengths.total) == ("class", 60)
    other_class = known.outputs("batch", 20, 20)
    assert other_class is not None
    assert (other_class.cell, other_class.lengths.total) == ("tenant and model", 60)


def test_too_few_samples_say_nothing():
    assert habits(answers(50, MIN_SAMPLES - 1)).outputs("interactive", 1000, 100) is None
    assert habits(answers(50, MIN_SAMPLES)).outputs("interactive", 1000, 100) is not None


def test_a_class_may_have_a_colon_in_its_name():
    known = habits(answers(50, priority_class="a:b"))
    assert known.outputs("a:b", 1000, 100).cell == "class, limit and prompt"


def test_recent_answers_are_believed_once_they_differ():
    known = habits(answers(100, 500), answers(400, 40))
    found = known.outputs("interactive", 1000, 100)
    assert found is not None
    assert found.is_recent
    assert found.lengths.mean() == pytest.approx(400, rel=0.1)


def test_while_nothing_changed_all_answers_count():
    found = habits(answers(100, 500), answers(100, 40)).outputs("interactive", 1000, 100)
    assert found is not None
    assert (found.is_recent, found.lengths.total) == (False, 540)


def test_a_tokenizer_is_learned_to_within_three_percent():
    draw = random.Random(1)
    known = habits(
        ended(10, foresight(counted=n), prompt=round(n * draw.gauss(1.4, 0.05)), ticket=f"t-{n}")
        for n in range(300, 400)
    )
    assert known.prompt_ratio(350) == pytest.approx(1.4, rel=0.03)


def test_absurd_counts_do_not_move_the_ratio():
    honest = [ended(10, foresight(counted=500), prompt=700, ticket=f"t-{n}") for n in range(60)]
    absurd = [ended(10, foresight(counted=500), prompt=10**6, ticket=f"a-{n}") for n in range(20)]
    assert habits([*honest, *absurd]).prompt_ratio(500) == pytest.approx(1.4, rel=0.03)


def test_short_prompts_have_a_ratio_of_their_own():
    """What a chat template adds is much beside ten tokens and nothing beside ten thousand."""
    short = [ended(10, foresight(counted=10), prompt=40, ticket=f"s-{n}") for n in range(30)]
    long = [ended(10, foresight(counted=10_000), prompt=10_030, ticket=f"l-{n}") for n in range(30)]
    known = habits([*short, *long])
    assert known.prompt_ratio(10) == pytest.approx(4, rel=0.03)
    assert known.prompt_ratio(10_000) == pytest.approx(1, rel=0.03)


def test_a_response_without_usage_is_known_by_its_size():
    known = habits(answers(100, body_bytes=25_000, is_streaming=True))
    assert known.tokens_of(50_000, is_streaming=True) == pytest.approx(200, rel=0.1)
    assert known.tokens_of(50_000, is_streaming=False) is None


def test_the_pace_is_that_of_decoding():
    known = habits([], answers(100, duration_s=5.0, first_byte_s=3.0, is_streaming=True))
    assert known.pace_s == pytest.approx(0.02, rel=0.1)


def test_estimates_that_are_far_too_low_are_called_bad():
    good = habits([], answers(100, 60, seen=foresight(expected=95)))
    assert good.calibration.output_bias == pytest.approx(100 / 95)
    assert not good.calibration.is_bad
    bad = habits([], answers(100, 60, seen=foresight(expected=50)))
    assert bad.calibration.is_bad
    assert not habits([], answers(100, 20, seen=foresight(expected=50))).calibration.is_bad


def test_the_spread_of_errors_is_from_the_tenth_to_the_ninetieth_percentile():
    steady = habits([], answers(100, 60, seen=foresight(expected=100))).calibration.output_spread
    assert steady == pytest.approx(1, rel=0.2)


def test_a_change_is_seen_though_the_recent_lessons_are_spread_over_many_cells():
    """A tenant whose requests fall into ten cells: none of them gets 20 of the last hundred lessons."""
    cells = [foresight(counted=4**n) for n in range(1, 11)]
    before = [ended(100, cell, ticket=f"b-{n}") for n in range(100) for cell in cells]
    after = [ended(400, cell, ticket=f"a-{n}") for n in range(8) for cell in cells]
    found = habits(before, after).outputs("interactive", 1000, 64)
    assert found is not None
    assert (found.is_recent, found.cell) == (True, "class and limit")
    assert found.lengths.mean() == pytest.approx(400, rel=0.1)


def test_a_cell_keeps_its_own_lengths_while_nothing_changes():
    short = answers(50, 300, seen=foresight(counted=20))
    long = answers(800, 300, seen=foresight(counted=5000))
    recent = [*answers(50, 40, seen=foresight(counted=20)), *answers(800, 40, seen=foresight(counted=5000))]
    found = habits([*short, *long], recent).outputs("interactive", 1000, 20)
    assert found is not None
    assert found.lengths.mean() == pytest.approx(50, rel=0.1)
