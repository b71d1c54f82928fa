"""From what a body asks for and what is known of its tenant to what to book."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from extproc.domain.habits import Evidence, Habits
from extproc.domain.histogram import Histogram
from extproc.domain.tokens import Demand, Estimate

_CAREFUL_SHARE = 0.9


class Reserve(StrEnum):
    """What to book for an answer.

    limit: what the client allows, or the pool's default.
    mean: the mean length of such answers. The sum over many requests concentrates around it, so that no
        request needs a margin of its own.
    occupancy: what such answers hold in the mean over their lives, half of it early. It fills engines better
        where answers are much longer than prompts, and brings pre-emptions.
    """

    LIMIT = "limit"
    MEAN = "mean"
    OCCUPANCY = "occupancy"


@dataclass(frozen=True, slots=True)
class Expectation:
    """How the answers to one request are expected to go on while they run.

    Attributes:
        prompt_tokens: of the request.
        answers: how many run side by side.
        limit: of one answer, tokens; None where there is none.
        lengths: of such answers, tokens.
        pace_s: from one token of an answer to the next.
    """

    prompt_tokens: int
    answers: int
    limit: int | None
    lengths: Histogram
    pace_s: float

    def tokens_after(self, running_s: float) -> int:
        """Return what the request is expected to hold in the end, once it has run so long."""
        cap = math.inf if self.limit is None else self.limit
        made = min(running_s / self.pace_s, cap)
        remaining = self.lengths.remaining(made, cap) or 0.0
        return self.prompt_tokens + self.answers * math.ceil(made + remaining)


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate and what it rests on.

    Attributes:
        estimate: what to book.
        limit: of one answer, from the client or the context; None where there is none.
        rule: how the output follows from the evidence, in words.
        evidence: lengths of similar answers; None where too few are known.
        prompt_ratio: the engine's count of the prompt over ours.
        peers: how many other tenants were asked, because too little is known of this one.
        expectation: how it will go on; None where that is unknown or of no use.
    """

    estimate: Estimate
    limit: int | None
    rule: str
    evidence: Evidence | None = None
    prompt_ratio: float = 1.0
    peers: int = 0
    expectation: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A pool's rules for what is not known of an answer.

    Attributes:
        default_output_tokens: expected length where the client gives no limit.
        context_tokens: the model's context length, or None when unknown.
        reserve: what to book.
    """

    default_output_tokens: int
    context_tokens: int | None = None
    reserve: Reserve = Reserve.MEAN


def foresee(
    demand: Demand,
    priority_class: str,
    budget: Budget,
    habits: Habits | None = None,
    peers: Sequence[Habits] = (),
) -> Forecast:
    """Return what to book for a demand.

    The prompt is our count times the learned ratio. The output is the mean length of similar answers, each
    cut at the limit; once for every answer. Where too little is known of the tenant, the tenant of the median
    mean among its peers stands in, so that a single one cannot move another's estimates. Where nothing is
    known, and for an engine that generated far more than expected, estimates are careful: the limit, and the
    90th percentile.

    Args:
        demand: what the body asks for.
        priority_class: of the request.
        budget: the pool's rules.
        habits: of the request's tenant with its model.
        peers: habits of other tenants with the same model.
    """
    ratio = _prompt_ratio(demand, habits, peers)
    prompt_tokens = math.ceil(demand.prompt_tokens * ratio)
    limit = demand.max_output_tokens
    if budget.context_tokens is not None:
        room = max(0, budget.context_tokens - prompt_tokens // demand.prompts)
        limit = room if limit is None else min(limit, room)
    if not demand.answers or budget.reserve is Reserve.LIMIT:
        return _unlearned(demand, prompt_tokens, limit, ratio, budget)
    evidence, asked = _evidence(demand, priority_class, limit, habits, peers)
    if evidence is None:
        return _unlearned(demand, prompt_tokens, limit, ratio, budget)
    output, rule = _output_tokens(evidence.lengths, limit, budget.reserve, habits)
    estimate, pace_s = Estimate(prompt_tokens, output * demand.answers), _pace_s(habits, peers)
    expectation = (
        Expectation(prompt_tokens, demand.answers, limit, evidence.lengths, pace_s) if pace_s else None
    )
    return Forecast(estimate, limit, rule, evidence, ratio, asked, expectation)


def _output_tokens(
    lengths: Histogram, limit: int | None, reserve: Reserve, habits: Habits | None
) -> tuple[int, str]:
    cap = math.inf if limit is None else limit
    if habits is not None and habits.calibration.is_bad:
        return math.ceil(
            min(cap, lengths.quantile(_CAREFUL_SHARE))
        ), "90th percentile, for means were too low"
    if reserve is Reserve.OCCUPANCY:
        return math.ceil(lengths.mean_held(cap)), "mean over the life of similar answers"
    return math.ceil(lengths.mean(cap)), "mean of similar answers"


def _unlearned(
    demand: Demand, prompt_tokens: int, limit: int | None, ratio: float, budget: Budget
) -> Forecast:
    output = budget.default_output_tokens if limit is None else limit
    rule = "the limit"
    if demand.max_output_tokens is None:
        output = min(output, budget.default_output_tokens)
        rule = "pool's default_output_tokens"
    return Forecast(Estimate(prompt_tokens, output * demand.answers), limit, rule, prompt_ratio=ratio)


def _prompt_ratio(demand: Demand, habits: Habits | None, peers: Sequence[Habits]) -> float:
    own = habits.prompt_ratio(demand.prompt_tokens) if habits is not None else None
    if own is not None:
        return own
    known = [ratio for peer in peers if (ratio := peer.prompt_ratio(demand.prompt_tokens)) is not None]
    return sorted(known)[(len(known) - 1) // 2] if known else 1.0


def _evidence(
    demand: Demand, priority_class: str, limit: int | None, habits: Habits | None, peers: Sequence[Habits]
) -> tuple[Evidence | None, int]:
    """Return lengths of similar answers, and how many peers were asked for them."""
    if habits is not None and (own := habits.outputs(priority_class, limit, demand.prompt_tokens)):
        return own, 0
    cap = math.inf if limit is None else limit
    known = [e for p in peers if (e := p.outputs(priority_class, limit, demand.prompt_tokens)) is not None]
    known.sort(key=lambda evidence: evidence.lengths.mean(cap))
    return (known[(len(known) - 1) // 2] if known else None), len(known)


def _pace_s(habits: Habits | None, peers: Sequence[Habits]) -> float | None:
    known = (habits, *peers) if habits is not None else peers
    return next((pace for one in known if (pace := one.pace_s) is not None), None)
