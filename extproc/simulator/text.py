"""The tokens of prompts and answers: how many a text has, how long an answer becomes, what it says."""

from __future__ import annotations

import math
import re
from random import Random
from typing import Any

import orjson

_CHAT_TOKENS_PER_MESSAGE = 4  # what chat templates put around a message: role, start and end marks

# Each is one token of cl100k and o200k, blank included, so that a client's tokenizer agrees with `usage`.
_PROSE = (
    " the water over a long wall and down to where turns the light in every house at night so that no one"
    " has wait for when there is much of it"
)
_WORDS: tuple[str, ...] = tuple(re.findall(r" \w+", _PROSE))


def text(start: int, tokens: int, *, seed: int) -> str:
    """Return tokens `start` to `start + tokens` of the endless text number `seed`."""
    if tokens == 1:  # nearly always: one step, one token
        return _WORDS[(seed + start) % len(_WORDS)]
    return "".join(_WORDS[(seed + at) % len(_WORDS)] for at in range(start, start + tokens))


class OutputLengths:
    """Lengths of answers, lognormal as production traces are, each drawn from its number alone."""

    def __init__(self, *, mean_tokens: float, cv: float, seed: int) -> None:
        self._sigma = math.sqrt(math.log1p(cv**2))
        self._mu = math.log(mean_tokens) - self._sigma**2 / 2
        self._seed = seed

    def draw(self, number: int) -> int:
        """Return the length of answer `number` in tokens, at least 1."""
        length = Random(f"{self._seed}:{number}").lognormvariate(self._mu, self._sigma)
        return max(1, round(length))


class TokenCounter:
    """Counts prompt tokens by length: no tokenizer is needed to keep usage and KV accounting consistent."""

    def __init__(self, *, tokens_per_char: float, image_tokens: int) -> None:
        self._tokens_per_char = tokens_per_char
        self._image_tokens = image_tokens

    def text(self, value: str) -> int:
        """Return the tokens of a text."""
        return math.ceil(len(value) * self._tokens_per_char)

    def prompt(self, prompt: str | list[int]) -> int:
        """Return the tokens of a prompt given as text or as token ids; at least 1."""
        return max(1, self.text(prompt) if isinstance(prompt, str) else len(prompt))

    def chat(self, *, messages: Any, tools: Any = None, system: Any = None) -> int:
        """Return the tokens of a conversation in any of the chat dialects; at least 1."""
        listed = messages if isinstance(messages, list) else [messages]
        tokens = _CHAT_TOKENS_PER_MESSAGE * len(listed) + sum(map(self._content, listed))
        return max(1, tokens + self._content(system) + (self.text(_json(tools)) if tools else 0))

    def _content(self, content: Any) -> int:
        """Return the tokens of a message, a part of one, or a list of parts."""
        match content:
            case None:
                return 0
            case str():
                return self.text(content)
            case list():
                return sum(map(self._content, content))
            case {"type": "image" | "image_url" | "input_image"}:
                return self._image_tokens
            case {"text": str() as words}:
                return self.text(words)
            case {"content": parts, **rest}:
                return self._content(parts) + self._content(rest.get("tool_calls"))
            case _:
                return self.text(_json(content))


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
