"""What `forebay estimate` prints: the reckoning of one body, from text to reservation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from extproc.dialects import recognise
from extproc.domain.errors import ConfigError, QueueUnavailable
from extproc.domain.forecast import Budget, Forecast, Reserve, foresee
from extproc.domain.habits import Habits
from extproc.domain.tokens import Demand
from extproc.estimation import TiktokenEstimator
from extproc.learning.ports import HabitKey
from extproc.lessons import RedisLessons
from extproc.settings import PoolSettings, Settings
from extproc.waitqueue.client import connect

_MOST_PEERS = 25


@dataclass(frozen=True, slots=True)
class Asker:
    """Who would send the body, and where to.

    Attributes:
        path: the path it would be posted to.
        model: takes the place of the body's own model.
        tenant: whose habits count.
        priority_class: the class of the request; the default class if None.
    """

    path: str = "/v1/chat/completions"
    model: str | None = None
    tenant: str = "default"
    priority_class: str | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store knows that bears on one request."""

    source: str
    habits: Habits | None = None
    peers: list[Habits] = field(default_factory=list)


async def explain(settings: Settings, body: bytes, asker: Asker) -> dict[str, Any]:
    """Return how much would be reserved for a body, and why, with what the shared store has learnt.

    Args:
        settings: the configuration.
        body: the request's body.
        asker: who would send it, and where to.

    Raises:
        BadRequest: the body cannot be understood.
        ConfigError: no managed endpoint has that path.
    """
    endpoint = recognise(asker.path)
    if endpoint is None:
        raise ConfigError(f"--path {asker.path}: not an inference endpoint; requests to it pass untouched")
    estimator = TiktokenEstimator(settings.estimation)
    try:
        reckoning = estimator.explain(
            endpoint, body if asker.model is None else _with_model(body, asker.model)
        )
    finally:
        estimator.close()
    pool = settings.pool_for(reckoning["model"])
    if pool is None:
        return {**reckoning, "pool": None, "reservation_tokens": 0, "why": "no pool manages the model"}
    demand = Demand(
        reckoning["prompt_tokens"],
        reckoning["max_output_tokens"],
        answers=reckoning["answers"],
        prompts=reckoning["prompts"],
    )
    priority_class = asker.priority_class or settings.default_class
    known = await _known(settings, pool, reckoning["model"] or pool.name, asker.tenant)
    budget = Budget(pool.default_output_tokens, pool.context_tokens, Reserve(pool.reserve))
    forecast = foresee(demand, priority_class, budget, known.habits, known.peers)
    return {
        **reckoning,
        "pool": pool.name,
        "tenant": asker.tenant,
        "priority_class": priority_class,
        **_reasons(forecast, known),
        "context_tokens": pool.context_tokens,
        "reservation_tokens": forecast.estimate.reservation_tokens,
        "capacity_tokens": pool.capacity.tokens,
    }


def _reasons(forecast: Forecast, known: _Known) -> dict[str, Any]:
    evidence = forecast.evidence
    learnt: dict[str, Any] = {"from": known.source, "prompt_ratio": round(forecast.prompt_ratio, 3)}
    if evidence is not None:
        learnt |= {
            "answers_like": evidence.cell,
            "of": f"the median of {forecast.peers} other tenants" if forecast.peers else "this tenant",
            "samples": evidence.lengths.total,
            "only_recent": evidence.is_recent,
            "quantiles": {f"p{q}": round(evidence.lengths.quantile(q / 100)) for q in (10, 50, 90, 99)},
        }
    return {
        "reserved_prompt_tokens": forecast.estimate.prompt_tokens,
        "output_tokens": forecast.estimate.output_tokens,
        "output_from": forecast.rule,
        "learnt": learnt,
    }


async def _known(settings: Settings, pool: PoolSettings, model: str, tenant: str) -> _Known:
    """Return what the store knows; a store that is away knows nothing."""
    budget_s = settings.redis.timeout_s * 4
    async with connect(settings.redis.url, timeout_s=budget_s, max_connections=1) as client:
        store = RedisLessons(client, pool.name, timeout_s=budget_s)
        try:
            stored = await store.read(HabitKey(model, tenant))
            _, keys = await store.changed(0, 1_000)
            others = [key for key in keys if key.model == model and key.tenant != tenant][:_MOST_PEERS]
            peers = [await store.read(key) for key in others]
        except QueueUnavailable as error:
            return _Known(f"nothing: the store is away ({error})")
    return _Known(
        "the shared store",
        Habits(stored.recent, stored.lasting) if stored.lasting else None,
        [Habits(peer.recent, peer.lasting) for peer in peers],
    )


def _with_model(body: bytes, model: str) -> bytes:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body  # reading it says what is wrong
    return orjson.dumps({**parsed, "model": model}) if isinstance(parsed, dict) else body
