"""Count the tokens of texts, exactly up to a cap and by a sample beyond it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from extproc.estimation.count_cache import Count, CountCache
from extproc.estimation.tokenizer import Tokenizer

_MOST_BYTES_A_CHAR = 4
_WINDOW_CHARS = 2_048  # each window cuts a word at either end: at most 0.5 % too many tokens


class TextCounter:
    """Counts the texts of a request; safe to use from several threads.

    The cap bounds the time a request takes: the worst texts known (one word without end) cost 240 ns a
    byte, English 25, so that 64 KiB take 16 ms at most. tiktoken gives up the interpreter lock meanwhile.
    """

    def __init__(
        self, cache: CountCache, *, exact_bytes: int, bytes_per_token: float, cache_from_chars: int
    ) -> None:
        self._cache = cache
        self._exact_bytes = exact_bytes
        self._bytes_per_token = bytes_per_token
        self._cache_from_chars = cache_from_chars

    def skim(self, texts: Sequence[str]) -> list[Count]:
        """Return counts from the sizes alone, none of them exact."""
        return [Count(math.ceil(_utf8_bytes(text) / self._bytes_per_token), is_exact=False) for text in texts]

    def count(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Count]:
        """Return the count of each text.

        All are exact while those not remembered fit the cap. Otherwise half of the cap goes to texts in
        order, so that a long history is remembered bit by bit over the turns of its chat, and the other
        half to a sample spread evenly over the rest.
        """
        keys: dict[int, bytes] = {}
        counts: list[Count | None] = [None] * len(texts)
        for index, text in enumerate(texts):
            if len(text) >= self._cache_from_chars:
                keys[index] = key = self._cache.key(tokenizer.name, text)
                counts[index] = self._cache.get(key)
        unknown = [index for index, count in enumerate(counts) if count is None]
        fresh = self._counted(tokenizer, [texts[index] for index in unknown])
        for index, count in zip(unknown, fresh, strict=True):
            counts[index] = count
            if index in keys:
                self._cache.put(keys[index], count)
        return [count for count in counts if count is not None]

    def _counted(self, tokenizer: Tokenizer, texts: list[str]) -> list[Count]:
        fits = sum(map(len, texts)) * _MOST_BYTES_A_CHAR <= self._exact_bytes
        if fits or sum(map(_utf8_bytes, texts)) <= self._exact_bytes:
            return self._tokenised(tokenizer, texts)
        return self._capped(tokenizer, texts)

    def _capped(self, tokenizer: Tokenizer, texts: list[str]) -> list[Count]:
        budget = self._exact_bytes // 2
        whole: dict[int, str] = {}
        for index, text in enumerate(texts):
            if (size := _utf8_bytes(text)) <= budget:
                budget -= size
                whole[index] = text
        counts = dict(zip(whole, self._tokenised(tokenizer, list(whole.values())), strict=True))
        rest = [text for index, text in enumerate(texts) if index not in whole]
        tokens_per_char = self._sampled(tokenizer, rest, self._exact_bytes // 2 + budget)
        return [
            counts.get(index) or Count(math.ceil(len(text) * tokens_per_char), is_exact=False)
            for index, text in enumerate(texts)
        ]

    def _tokenised(self, tokenizer: Tokenizer, texts: list[str]) -> list[Count]:
        """Count with tiktoken, or by size should it give up.

        Releases before 0.13 did on runs of a million characters, with a panic of Rust, which Python sees
        as a `BaseException`. Being wrong beats taking the worker thread down.
        """
        try:
            return [Count(tokens, is_exact=True) for tokens in tokenizer.counts(texts)]
        except BaseException:  # noqa: BLE001 - a panic is no Exception, and no signal reaches a worker thread
            return self.skim(texts)

    def _sampled(self, tokenizer: Tokenizer, texts: list[str], sample_bytes: int) -> float:
        """Return tokens per character, from windows spread evenly over the texts laid end to end."""
        chars = sum(map(len, texts))
        sample_chars = int(sample_bytes * chars / sum(map(_utf8_bytes, texts)))
        windows = list(_windows(texts, count=max(1, sample_chars // _WINDOW_CHARS)))
        tokens = sum(count.tokens for count in self._tokenised(tokenizer, windows))
        return tokens / sum(map(len, windows))


def _windows(texts: list[str], *, count: int) -> Iterator[str]:
    """Yield up to `count` slices of non-empty texts, at even distances, none reaching into the next text."""
    ends = list(accumulate(map(len, texts)))
    last = max(0, ends[-1] - _WINDOW_CHARS)
    for number in range(count):
        place = last * number // max(1, count - 1)
        index = bisect_right(ends, place)
        start = place - (ends[index] - len(texts[index]))
        yield texts[index][start : start + _WINDOW_CHARS]


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
