"""Exact under the cap, near beyond it, and remembered."""

from __future__ import annotations

import pydoc_data.topics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.estimation.count_cache import Count, CountCache
from extproc.estimation.encodings import load
from extproc.estimation.text_counter import TextCounter
from extproc.estimation.tokenizer import Tokenizer

ENGLISH = "\n\n".join(pydoc_data.topics.topics.values())  # 700 KB of Python's reference
TOKENIZER = load("cl100k_base")


class CountingTokenizer(Tokenizer):
    """Remembers how much it was asked to tokenise, or breaks down at it."""

    def __init__(self, breaks: BaseException | None = None) -> None:
        self.name = TOKENIZER.name
        self._encoding = TOKENIZER._encoding
        self._breaks = breaks
        self.seen: list[str] = []

    def counts(self, texts):
        if self._breaks:
            raise self._breaks
        self.seen.extend(texts)
        return super().counts(texts)


def counter(*, entries: int = 1_000, exact_bytes: int = 65_536) -> TextCounter:
    return TextCounter(
        CountCache(entries), exact_bytes=exact_bytes, bytes_per_token=4.0, cache_from_chars=256
    )


def test_texts_that_fit_the_cap_together_are_exact(oracle):
    texts = [ENGLISH[:40_000], "", ENGLISH[40_000:65_000], "short"]
    assert counter().count(TOKENIZER, texts) == [Count(oracle(text), is_exact=True) for text in texts]


def test_a_byte_above_the_cap_is_no_longer_exact():
    assert counter(exact_bytes=9_000).count(TOKENIZER, ["ab " * 3_000])[0].is_exact
    assert not counter(exact_bytes=9_000).count(TOKENIZER, ["ab " * 3_000 + "c"])[0].is_exact


def test_the_cap_is_in_bytes_of_utf8():
    assert counter(exact_bytes=9_000).count(TOKENIZER, ["é" * 4_500])[0].is_exact
    assert not counter(exact_bytes=9_000).count(TOKENIZER, ["é" * 4_501])[0].is_exact


@pytest.mark.parametrize("size", [100_000, len(ENGLISH)])
def test_english_is_extrapolated_to_within_three_percent(oracle, size):
    found = counter().count(TOKENIZER, [ENGLISH[:size]])[0]
    assert not found.is_exact
    assert found.tokens == pytest.approx(oracle(ENGLISH[:size]), rel=0.03)


def test_a_prompt_whose_halves_differ_is_sampled_in_both(oracle):
    text = ENGLISH[:200_000] + "汉字漢字" * 25_000
    assert counter().count(TOKENIZER, [text])[0].tokens == pytest.approx(oracle(text), rel=0.05)


def test_many_texts_beyond_the_cap_are_near_together(oracle):
    texts = [ENGLISH[at : at + 700] for at in range(0, 350_000, 700)]
    counts = counter().count(TOKENIZER, texts)
    assert sum(count.tokens for count in counts) == pytest.approx(sum(map(oracle, texts)), rel=0.03)
    assert [count.is_exact for count in counts] == sorted((count.is_exact for count in counts), reverse=True)


@pytest.mark.parametrize("run", ["a", " ", "\n", "="])
def test_a_million_times_one_character_is_about_right(oracle, run):
    text = run * 1_000_000
    per_token = 65_536 / oracle(run * 65_536)
    assert counter().count(TOKENIZER, [text])[0].tokens == pytest.approx(1_000_000 / per_token, rel=0.05)


@given(sizes=st.lists(st.integers(0, 9_000), max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_request_tokenises_more_than_the_cap(sizes):
    tokenizer = CountingTokenizer()
    texts = [ENGLISH[:size] for size in sizes]
    counts = counter(exact_bytes=8_192).count(tokenizer, texts)
    assert len(counts) == len(texts)
    assert sum(map(len, tokenizer.seen)) <= 8_192


def test_a_history_that_comes_again_is_not_tokenised_again():
    remembering, tokenizer = counter(), CountingTokenizer()
    history = [ENGLISH[at : at + 2_000] for at in range(0, 20_000, 2_000)]
    first = remembering.count(tokenizer, history)
    tokenizer.seen.clear()
    assert remembering.count(tokenizer, [*history, "And now?"])[:-1] == first
    assert tokenizer.seen == ["And now?"]


def test_a_long_history_becomes_exact_over_the_turns_of_its_chat():
    remembering = counter(exact_bytes=8_192)
    history = [ENGLISH[at : at + 1_000] for at in range(0, 30_000, 1_000)]
    exact = [sum(c.is_exact for c in remembering.count(TOKENIZER, history)) for _ in range(3)]
    assert exact[0] == 4
    assert exact == sorted(exact)


def test_an_extrapolated_count_is_remembered_as_such():
    remembering, tokenizer = counter(exact_bytes=4_096), CountingTokenizer()
    first = remembering.count(tokenizer, [ENGLISH[:9_000]])
    tokenizer.seen.clear()
    assert remembering.count(tokenizer, [ENGLISH[:9_000]]) == first
    assert not first[0].is_exact
    assert tokenizer.seen == []


@pytest.mark.parametrize("fault", [ValueError("stack"), BaseException("panic")])
def test_where_tiktoken_gives_up_the_size_decides(fault):
    assert counter().count(CountingTokenizer(fault), ["x" * 400]) == [Count(100, is_exact=False)]
    assert counter().count(CountingTokenizer(fault), ["x" * 400_000])[0].tokens == pytest.approx(
        100_000, rel=0.01
    )


def test_skimming_goes_by_bytes():
    assert counter().skim(["", "abc", "é" * 4]) == [Count(0, False), Count(1, False), Count(2, False)]
