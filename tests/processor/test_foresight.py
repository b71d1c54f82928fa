"""What was foreseen travels as text and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.response import Foresight
from extproc.processor.foresight import foresight_fields, read_foresight
from extproc.processor.proto import forebay_pb2 as wire

counts = st.integers(0, 2**40)
names = st.text(st.characters(exclude_categories=["Cs"]))
foresights = st.builds(Foresight, names, names, counts, counts, counts, st.none() | counts, counts)


@given(foresights)
def test_what_was_foreseen_survives_the_way_through_the_metadata(foresight):
    message = wire.Metadata()
    fields = message.filter_metadata["forebay"].fields
    for name, value in foresight_fields(foresight).items():
        fields[name].string_value = value
    back = wire.Metadata.FromString(message.SerializeToString()).filter_metadata["forebay"].fields
    assert read_foresight({name: value.string_value for name, value in back.items()}) == foresight


FIELDS = foresight_fields(Foresight("llama", "acme", 90, 100, 50, 200, 1))


def test_the_numbers_take_one_field():
    assert FIELDS == {"model": "llama", "tenant": "acme", "foresight": "90 100 50 200 1"}


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_nothing_foreseen(name):
    assert read_foresight({k: v for k, v in FIELDS.items() if k != name}) is None


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "90 100 50 200",
        "90 100 50 200 1 1",
        "90 100 50 -2 1",
        "-1 100 50 200 1",
        "90 100 50.5 200 1",
        "90 100 50 200 1\n",
        "90 100 50 ٢ 1",
        f"{'9' * 5000} 1 1 1 1",
    ],
)
def test_a_malformed_field_is_nothing_foreseen(packed):
    assert read_foresight(FIELDS | {"foresight": packed}) is None


@given(st.text())
def test_no_text_is_taken_amiss(packed):
    read_foresight(FIELDS | {"foresight": packed})
