"""Outcomes: every way a request can end, as closed sets whose values are metric labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Refusal(StrEnum):
    """Why a request was refused: `x-forebay-reason`, the error's `code` and the metric's `outcome`."""

    INVALID_BODY = "invalid_body"
    NEVER_FITS = "never_fits"
    BODY_TOO_LARGE = "body_too_large"
    QUEUE_FULL = "queue_full"
    TENANT_QUEUE_FULL = "tenant_queue_full"
    WAIT_TIMEOUT = "wait_timeout"
    SLO_UNREACHABLE = "slo_unreachable"
    NOT_QUEUED = "not_queued"
    NO_BACKENDS = "no_backends"
    STORE_UNAVAILABLE = "store_unavailable"
    DRAINING = "draining"


class Outcome(StrEnum):
    """How an exchange went for admission, when it was not a `Refusal`."""

    ADMITTED = "admitted"
    WITHDRAWN = "withdrawn"  # the client went before it was admitted
    HANDED_OVER = "handed_over"  # a draining replica gave its waiter to another one
    UNMANAGED = "unmanaged"  # no pool manages the path or the model


class Ending(StrEnum):
    """Why a response ended, as the access log tells it."""

    COMPLETE = "complete"
    CLIENT_GONE = "client_gone"
    UPSTREAM_RESET = "upstream_reset"
    TIMEOUT = "timeout"
    UPSTREAM_ERROR = "upstream_error"  # the engine answered 5xx or 429
    REFUSED = "refused"


STATUS: dict[Refusal, int] = {
    Refusal.INVALID_BODY: 400,
    Refusal.NEVER_FITS: 413,
    Refusal.BODY_TOO_LARGE: 413,
    Refusal.QUEUE_FULL: 429,
    Refusal.TENANT_QUEUE_FULL: 429,
    Refusal.WAIT_TIMEOUT: 429,
    Refusal.SLO_UNREACHABLE: 429,
    Refusal.NOT_QUEUED: 429,
    Refusal.NO_BACKENDS: 503,
    Refusal.STORE_UNAVAILABLE: 503,
    Refusal.DRAINING: 503,
}

MAX_RETRY_AFTER_S = 60
_UNKNOWN_DRAIN_WAIT_S = 2.0  # no tokens were given back yet: ask for a short pause, not a guess


def retry_after_s(ahead_tokens: float, drain_tokens_per_s: float | None, *, jitter: float) -> int:
    """Return whole seconds after which trying again makes sense, 1 to `MAX_RETRY_AFTER_S`.

    Args:
        ahead_tokens: tokens that must be given back before the request could go on.
        drain_tokens_per_s: rate at which the pool gives tokens back; None when unknown.
        jitter: 0 to 1, drawn by the caller. It spreads the answers over half as much again, so that
            clients refused together do not come back together.
    """
    wait_s = ahead_tokens / drain_tokens_per_s if drain_tokens_per_s else _UNKNOWN_DRAIN_WAIT_S
    base_s = min(wait_s, MAX_RETRY_AFTER_S / 1.5)
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(base_s * (1 + 0.5 * jitter) + jitter)))


@dataclass(frozen=True, slots=True)
class Shedding:
    """A refusal with what the client should know."""

    refusal: Refusal
    message: str
    param: str | None = None
    retry_after_s: int | None = None

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return STATUS[self.refusal]
