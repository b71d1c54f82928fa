"""What is sent: how much of which class, when, and with which bodies. The same seed sends the same."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import orjson

from extproc.domain.errors import ConfigError

_WORDS = "the and for you all not but can her was one our out day get has him how man new now old see two"
"""Each is one token with its space, in cl100k and o200k; and four characters, as an engine may reckon."""
_NUMBER = b"%012d"


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """One class' part of the load.

    Attributes:
        name: sent as `x-forebay-priority`.
        share: of all requests; shares need not add up to 1.
        prompt_tokens: length of its prompts, about.
        output_tokens: length of its answers; engines that know `ignore_eos` give exactly that.
    """

    name: str
    share: float = 1.0
    prompt_tokens: int = 150
    output_tokens: int = 60

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `NAME=SHARE[:PROMPT_TOKENS[:OUTPUT_TOKENS]]` says.

        Raises:
            ConfigError: it says something else.
        """
        name, _, rest = text.partition("=")
        share, *lengths = rest.split(":")
        try:
            load = cls(name, float(share), *map(int, lengths))
        except (TypeError, ValueError):
            raise ConfigError(
                f"--class {text}: must be NAME=SHARE[:PROMPT_TOKENS[:OUTPUT_TOKENS]], like batch=0.2:4000:600"
            ) from None
        if not name or not 0 < load.share < math.inf or min(load.prompt_tokens, load.output_tokens) < 1:
            raise ConfigError(f"--class {text}: needs a name, and numbers above 0")
        return load


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What `forebay bench` was asked for; see its `--help`.

    Attributes:
        urls: gateways; requests go to them in turn.
        model: that the bodies name.
        classes: what the load is made of.
        rate_per_s: requests a second, all classes together, whatever comes of them.
        duration_s: of sending, beside the warm-up; answers are awaited beyond.
        warmup_s: of sending before, which is not reported.
        timeout_s: of one request.
        is_streaming: ask for streams; without, there is no time to the first token.
        body_bytes: exact size of all bodies, in place of `prompt_tokens`; None leaves it to them.
        tenants: sent as `x-forebay-tenant`, `tenant-0` and on, at random.
        seed: of arrivals, classes and tenants.
        headers: further request headers, such as a key; not saved.
    """

    urls: tuple[str, ...] = ("http://127.0.0.1:8080",)
    model: str = "llama-3.3-70b"
    classes: tuple[ClassLoad, ...] = (ClassLoad("interactive", 0.8), ClassLoad("batch", 0.2, 1000, 200))
    rate_per_s: float = 10.0
    duration_s: float = 30.0
    warmup_s: float = 0.0
    timeout_s: float = 120.0
    is_streaming: bool = True
    body_bytes: int | None = None
    tenants: int = 1
    seed: int = 0
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def parse_headers(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return headers written as `name: value`.

        Raises:
            ConfigError: a line is none. It is not shown, for it may hold a key.
        """
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        if not all(name and value for name, value in pairs):
            raise ConfigError("--header: must be like 'authorization: Bearer ...'")
        return tuple(pairs)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to be sent: `at_s` after the start, with that body."""

    at_s: float
    url: str
    load: ClassLoad
    tenant: str
    body: bytes


def poisson(rate_per_s: float, duration_s: float, rng: random.Random) -> Iterator[float]:
    """Yield the times, in seconds from 0 to `duration_s`, of events with exponential gaps."""
    at_s = rng.expovariate(rate_per_s)
    while at_s < duration_s:
        yield at_s
        at_s += rng.expovariate(rate_per_s)


def arrivals(options: BenchOptions) -> Iterator[Arrival]:
    """Return the requests of a run, in order of time.

    Classes drawn at random for the arrivals of one Poisson process make each class one, too.

    Raises:
        ConfigError: `body_bytes` is less than a body has without its prompt.
    """
    templates = [BodyTemplate(options, load) for load in options.classes]
    return _arrivals(options, templates)


def _arrivals(options: BenchOptions, templates: list[BodyTemplate]) -> Iterator[Arrival]:
    rng = random.Random(options.seed)
    shares = [template.load.share for template in templates]
    urls = itertools.cycle(options.urls)
    times = poisson(options.rate_per_s, options.warmup_s + options.duration_s, rng)
    for number, at_s in enumerate(times):
        [template] = rng.choices(templates, shares)
        tenant = f"tenant-{rng.randrange(options.tenants)}"
        yield Arrival(at_s, next(urls), template.load, tenant, template.fill(number))


class BodyTemplate:
    """Makes the bodies of a class: equal but for a number at the start of the prompt.

    So no two share a prefix that an engine or an estimator could remember, and making one costs a copy.
    """

    def __init__(self, options: BenchOptions, load: ClassLoad) -> None:
        self.load = load
        frame = _body(options, load, "NUMBER").split(b"NUMBER")
        self._head, self._tail = frame[0], frame[1]
        if options.body_bytes is None:
            chars = 4 * load.prompt_tokens
        else:
            chars = options.body_bytes - len(self._head) - len(_NUMBER % 0) - len(self._tail)
        if chars < 0:
            raise ConfigError(
                f"--body-bytes {options.body_bytes}: a body without a prompt is larger by {-chars}"
            )
        words = f" {_WORDS}"
        self._text = (words * (chars // len(words) + 1))[:chars].encode()

    def fill(self, number: int) -> bytes:
        """Return the body with that number in it."""
        return b"".join((self._head, _NUMBER % number, self._text, self._tail))


def _body(options: BenchOptions, load: ClassLoad, prompt: str) -> bytes:
    streaming = {"stream": True, "stream_options": {"include_usage": True}} if options.is_streaming else {}
    return orjson.dumps(
        {
            "model": options.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": load.output_tokens,
            "ignore_eos": True,
            **streaming,
        }
    )
