"""What `/v1/models` tells of the context."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extproc.backends.models import context_tokens

PAGE = (Path(__file__).parent / "fixtures" / "vllm_models.json").read_bytes()


def listing(*lengths: object) -> bytes:
    return json.dumps({"data": [{"id": "m", "max_model_len": length} for length in lengths]}).encode()


def test_a_recorded_page_tells_the_context():
    assert context_tokens(PAGE) == 4096


def test_adapters_that_say_nothing_do_not_count():
    assert context_tokens(listing(None, 8192, None)) == 8192


def test_of_several_the_longest_counts():
    assert context_tokens(listing(4096, 131_072, 8192)) == 131_072


@pytest.mark.parametrize("length", [None, 0, -1, 4096.0, True, "4096", 2**40, [4096]])
def test_what_is_no_length_is_unknown(length):
    assert context_tokens(listing(length)) is None


@pytest.mark.parametrize(
    "page", [b"", b"<html>", b"[]", b"null", b"{}", b'{"data": null}', b'{"data": [1, null]}', PAGE[:-2]]
)
def test_a_page_of_another_kind_is_unknown(page):
    assert context_tokens(page) is None
