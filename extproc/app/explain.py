"""What `forebay estimate` prints: the reckoning of one body, from text to reservation."""

from __future__ import annotations

from typing import Any

import orjson

from extproc.dialects import recognise
from extproc.domain.errors import ConfigError
from extproc.domain.tokens import Demand, estimate
from extproc.estimation import TiktokenEstimator
from extproc.settings import Settings


def explain(settings: Settings, body: bytes, *, path: str, model: str | None) -> dict[str, Any]:
    """Return how much would be reserved for a body, and why.

    Args:
        settings: the configuration.
        body: the request's body.
        path: the path it would be posted to.
        model: takes the place of the body's own model.

    Raises:
        BadRequest: the body cannot be understood.
        ConfigError: no managed endpoint has that path.
    """
    endpoint = recognise(path)
    if endpoint is None:
        raise ConfigError(f"--path {path}: not an inference endpoint; requests to it pass untouched")
    estimator = TiktokenEstimator(settings.estimation)
    try:
        reckoning = estimator.explain(endpoint, body if model is None else _with_model(body, model))
    finally:
        estimator.close()
    pool = settings.pool_for(reckoning["model"])
    if pool is None:
        return {**reckoning, "pool": None, "reservation_tokens": 0, "why": "no pool manages the model"}
    cost = estimate(
        Demand(
            reckoning["prompt_tokens"],
            reckoning["max_output_tokens"],
            answers=reckoning["answers"],
            prompts=reckoning["prompts"],
        ),
        default_output_tokens=pool.default_output_tokens,
        context_tokens=pool.context_tokens,
    )
    is_default = reckoning["max_output_tokens"] is None
    return {
        **reckoning,
        "pool": pool.name,
        "output_tokens": cost.output_tokens,
        "output_from": "pool's default_output_tokens" if is_default else "the body's limit",
        "context_tokens": pool.context_tokens,
        "reservation_tokens": cost.reservation_tokens,
        "capacity_tokens": pool.capacity.tokens,
    }


def _with_model(body: bytes, model: str) -> bytes:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body  # reading it says what is wrong
    return orjson.dumps({**parsed, "model": model}) if isinstance(parsed, dict) else body
