from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.rank import ARRIVAL_SPAN, MAX_CLASS_RANK, class_rank_of, rank

classes = st.integers(0, MAX_CLASS_RANK)
arrivals = st.integers(0, ARRIVAL_SPAN - 1)


@given(classes, arrivals, classes, arrivals)
def test_the_order_is_class_first_and_arrival_last(class_1, arrival_1, class_2, arrival_2):
    before = rank(class_1, arrival_1) < rank(class_2, arrival_2)
    assert before == ((class_1, arrival_1) < (class_2, arrival_2))


@given(classes, arrivals)
def test_a_rank_is_exact_as_a_double_and_tells_its_class(class_rank, arrival):
    place = rank(class_rank, arrival)
    assert int(float(place)) == place < 2**53
    assert class_rank_of(place) == class_rank


def test_arrivals_by_the_clock_fit_until_the_year_2109():
    assert ARRIVAL_SPAN > 4_386_528_000_000  # 2109-01-01 in milliseconds


@pytest.mark.parametrize(
    ("class_rank", "arrival"),
    [(-1, 0), (MAX_CLASS_RANK + 1, 0), (0, -1), (0, ARRIVAL_SPAN)],
)
def test_a_part_out_of_range_is_refused_with_its_value(class_rank, arrival):
    with pytest.raises(ValueError, match=str(class_rank if arrival == 0 else arrival)):
        rank(class_rank, arrival)
