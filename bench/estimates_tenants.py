"""Who sends what in `bench/estimates.py`, and the replica that learns from it."""
# ruff: noqa: INP001, S311 - beside a script, whose draws must come out the same again

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from extproc.domain.forecast import Budget, Forecast, Reserve
from extproc.domain.outcome import Ending
from extproc.domain.request import FlowKey, PriorityClass
from extproc.domain.response import Ended, Foresight
from extproc.domain.tokens import Demand, Usage
from extproc.learning import Learning
from extproc.lessons import MemoryLessons
from extproc.processor.gate import Pool
from extproc.simulator.settings import EngineSettings

MODEL = "llama-3.3-70b"
CLASSES = (PriorityClass("interactive", 0), PriorityClass("batch", 10))
INTERACTIVE_SHARE = 0.6
ENGINE = EngineSettings()
EPOCH_MS = 1_800_000_000_000  # where the hand-set clocks begin

_DEFAULT_OUTPUT_TOKENS = 512  # as in `PoolSettings`
_MOST_PROMPT_TOKENS = 16_000


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody's habits. Lengths are lognormal and independent of each other.

    Attributes:
        name: of the tenant.
        share: of all requests.
        prompt_tokens: median, as the engine counts.
        output_tokens: median.
        max_tokens: what the client sends with every request; None where it sends nothing.
        tokenizer_ratio: the engine's count of a prompt over ours; a request's own is some 3 % off.
        prompt_sigma: deviation of the prompts' logarithm.
        output_sigma: the same of the outputs.
    """

    name: str
    share: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = 4_096
    tokenizer_ratio: float = 1.15
    prompt_sigma: float = 0.85
    output_sigma: float = 0.8

    def draw(self, random: Random) -> Draw:
        """Return one request's sizes."""
        prompt = round(self.prompt_tokens * random.lognormvariate(0, self.prompt_sigma))
        prompt = min(max(1, prompt), _MOST_PROMPT_TOKENS)
        counted = max(1, round(prompt / self.tokenizer_ratio * random.lognormvariate(0, 0.03)))
        output = max(1, round(self.output_tokens * random.lognormvariate(0, self.output_sigma)))
        most = ENGINE.context_tokens - prompt
        return Draw(counted, prompt, min(output, most if self.max_tokens is None else self.max_tokens))


# Together as in Azure's trace of conversations: prompts with a median of about 1,020 tokens, outputs with one
# of about 129, sigma about 1 of either.
TENANTS = (
    Tenant("chat", 0.35, 1_000, 125),
    Tenant("support", 0.20, 600, 60, max_tokens=1_024),
    Tenant("search", 0.15, 2_200, 85),
    Tenant("code", 0.12, 1_500, 190),
    Tenant("agents", 0.10, 1_800, 240, max_tokens=2_048),
    Tenant("writing", 0.08, 400, 600, max_tokens=None),
)


# The same with half the prompt and four times the answer: there KV runs out long before compute does.
LONG_ANSWERS = tuple(
    replace(tenant, prompt_tokens=tenant.prompt_tokens // 2, output_tokens=4 * tenant.output_tokens)
    for tenant in TENANTS
)


@dataclass(frozen=True, slots=True)
class Draw:
    """Sizes of one request: the prompt as we count it and as the engine does, and the output."""

    counted_tokens: int
    prompt_tokens: int
    output_tokens: int

    @property
    def total_tokens(self) -> int:
        """What it holds in the end."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when, whose, and how large."""

    name: str
    at_s: float
    tenant: Tenant
    priority_class: PriorityClass
    sizes: Draw


def arrivals(
    rate_per_s: float, seconds: float, *, seed: int, tenants: Sequence[Tenant] = TENANTS
) -> list[Arrival]:
    """Return Poisson arrivals."""
    random, at_s = Random(seed), 0.0
    weights, made = [tenant.share for tenant in tenants], list[Arrival]()
    while (at_s := at_s + random.expovariate(rate_per_s)) < seconds:
        tenant = random.choices(tenants, weights)[0]
        priority_class = CLASSES[random.random() >= INTERACTIVE_SHARE]
        made.append(Arrival(f"r{len(made)}", at_s, tenant, priority_class, tenant.draw(random)))
    return made


class Silent:
    """A `LearningObserver` that nobody listens to."""

    def compared(self, kind: str, ratio: float) -> None:
        """Hear how right an estimate was."""

    def taught(self, *, is_guess: bool) -> None:
        """Hear of a lesson."""

    def calibrated(self, *, careful: int) -> None:
        """Hear how many estimates are careful."""


class School:
    """One replica that learns, and what it foresees: the product's code, with a clock by hand."""

    def __init__(self, clock_ms: Callable[[], int], reserve: Reserve = Reserve.MEAN) -> None:
        budget = Budget(_DEFAULT_OUTPUT_TOKENS, ENGINE.context_tokens, reserve)
        self.learning = Learning(MemoryLessons(clock_ms), Silent(), refresh_s=0)
        admission = cast("Any", None)  # foresight asks nobody to admit
        self._pool = Pool("bench", admission, 0.0, lambda: budget, self.learning)

    def foresee(self, tenant: Tenant, priority_class: PriorityClass, counted_tokens: int) -> Forecast:
        """Return what a replica would book for a request."""
        demand = Demand(counted_tokens, tenant.max_tokens)
        return self._pool.foresee(demand, MODEL, FlowKey(tenant.name, priority_class))

    def teach(
        self, arrival: Arrival, forecast: Forecast, duration_s: float | None, first_byte_s: float | None
    ) -> None:
        """Tell of a response that came to its end."""
        sizes, estimate = arrival.sizes, forecast.estimate
        foresight = Foresight(
            model=MODEL,
            tenant=arrival.tenant.name,
            counted_tokens=sizes.counted_tokens,
            prompt_tokens=estimate.prompt_tokens,
            output_tokens=estimate.output_tokens,
            max_output_tokens=forecast.limit,
            answers=1,
        )
        self.learning.note(
            Ended(
                pool="bench",
                priority_class=arrival.priority_class.name,
                ticket=arrival.name,
                ending=Ending.COMPLETE,
                foresight=foresight,
                usage=Usage(sizes.prompt_tokens, sizes.output_tokens),
                duration_s=duration_s,
                first_byte_s=first_byte_s,
                is_streaming=True,
            )
        )
