"""Our counts are tiktoken's."""

from __future__ import annotations

import inspect
import json
import pydoc_data.topics
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extproc.estimation.encodings import ENCODING_NAMES, load

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u3000"
# Words, marks and every kind of white space, so that runs of it meet everything that may follow them.
FRAGMENTS = st.sampled_from(
    [*SPACES, "  ", "\n\n", "\r\n", "word", "Über", "'s", "12345", "...", "/", "汉字", "😀", "\u017f"]
)
TEXTS = st.lists(FRAGMENTS, max_size=30).map("".join) | st.text(st.characters(codec="utf-8"), max_size=60)
CODE = inspect.getsource(textwrap)
PROSE = "\n".join(pydoc_data.topics.topics.values())[:60_000]


@pytest.mark.parametrize("name", ENCODING_NAMES)
@given(texts=st.lists(TEXTS.filter(lambda text: not {"\x1e", "\x1f"} & set(text)), max_size=4))
@settings(max_examples=300, deadline=None)
@example(texts=["  a", "a  ", "\n  ", " \n a", "a \t b\n\n  c"])
@example(texts=["", "", ""])
def test_counts_are_those_of_tiktoken(oracle, name, texts):
    assert load(name).counts(texts) == [oracle(text, name) for text in texts]


@pytest.mark.parametrize("name", ENCODING_NAMES)
@pytest.mark.parametrize("text", [PROSE, CODE, json.dumps({"a": [1, {"b": None}] * 50}, indent=4)], ids="pcj")
def test_counts_of_real_text_are_those_of_tiktoken(oracle, name, text):
    assert load(name).counts([text, text[:99]]) == [oracle(text, name), oracle(text[:99], name)]


@pytest.mark.parametrize(
    "text", ["<|endoftext|>", "<|im_start|>system", "a<|fim_prefix|>b", "<|endofprompt|>"]
)
def test_special_tokens_in_what_a_user_wrote_are_text(oracle, text):
    assert load("cl100k_base").counts([text]) == [oracle(text)]
    assert load("cl100k_base").counts([text])[0] > 3


def test_our_own_marks_in_a_text_change_no_other_count():
    counts = load("cl100k_base").counts(["one two", "a\x1eb\x1fc\x1e", "three  four"])
    assert len(counts) == 3
    assert counts[::2] == load("cl100k_base").counts(["one two", "three  four"])


@pytest.mark.parametrize("name", ENCODING_NAMES)
@pytest.mark.parametrize("run", ["a", " ", "\n", "\t", "=", "\0", "😀", " a", "ab\n  "])
def test_long_runs_are_counted(oracle, name, run):
    text = (run * 65_536)[:65_536]
    assert load(name).counts([text]) == [oracle(text, name)]
