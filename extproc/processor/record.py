"""What is told of one exchange: headers for the client, metadata for the access log, one line in our log."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Protocol

import structlog

from extproc.admission.service import Grant, Shed
from extproc.domain.errors import BadRequest, BodyTooLarge
from extproc.domain.outcome import Outcome, Refusal, Shedding
from extproc.domain.request import PriorityClass
from extproc.processor.foresight import foresight_fields
from extproc.processor.gate import TICKET, Passage
from extproc.processor.messages import Head

_log = structlog.get_logger()


class ExchangeObserver(Protocol):
    """Hears of what no pool hears of; returns at once and never raises."""

    def unmanaged(self) -> None:
        """A request passed untouched."""
        ...

    def refused_unread(self, refusal: Refusal, priority_class: PriorityClass) -> None:
        """A request was refused before its pool was known."""
        ...


def response_headers(passage: Passage, grant: Grant) -> dict[str, str]:
    """Return the contract's headers of an admitted response, for chains that let us write them."""
    return _headers(passage.request.flow.priority_class, grant.waited_ms, grant.tokens)


def consent(head: Head) -> dict[str, str]:
    """Return the dynamic metadata of a request that passes untouched.

    Envoy's `guard` filter lets a request with a body go on only with a ticket in its metadata, so that
    nothing goes on that nobody said yes to.
    """
    return {"ticket": head.headers.get(TICKET) or "-"}


def metadata(passage: Passage, grant: Grant) -> dict[str, str]:
    """Return the dynamic metadata of an admitted request.

    Envoy's `header_mutation` writes the first three as response headers; the access log brings all of it
    back, perhaps to another replica, to say how the response ended. Numbers travel as text, or Envoy
    would write them as doubles.
    """
    told = {
        "wait_ms": str(grant.waited_ms),
        "reserved_tokens": str(grant.tokens),
        "class": passage.request.flow.priority_class.name,
        "pool": passage.pool.name,
        "ticket": passage.request.id,
    }
    return told if passage.foresight is None else told | foresight_fields(passage.foresight)


def _headers(priority_class: PriorityClass, waited_ms: int, tokens: int) -> dict[str, str]:
    return {
        "x-forebay-queue-wait-ms": str(waited_ms),
        "x-forebay-reserved-tokens": str(tokens),
        "x-forebay-class": priority_class.name,
    }


class Record:
    """The story of one exchange, told once at its end.

    Args:
        observer: hears of exchanges that reach no pool.
        priority_class: the class the request's headers put it in.
    """

    def __init__(self, observer: ExchangeObserver, priority_class: PriorityClass) -> None:
        self._observer = observer
        self._class = priority_class
        self._started_s = asyncio.get_running_loop().time()
        self._passage: Passage | None = None
        self._grant: Grant | None = None
        self._shedding: Shedding | None = None
        self._outcome: str = Outcome.WITHDRAWN  # unless something better is heard of

    def unmanaged(self) -> None:
        """No pool manages the request."""
        self._outcome = Outcome.UNMANAGED
        self._observer.unmanaged()

    def concerns(self, passage: Passage) -> None:
        """The request is managed."""
        self._passage = passage

    def admitted(self, grant: Grant) -> None:
        """The request may go on."""
        self._grant = grant
        self._outcome = Outcome.ADMITTED

    def handed_over(self) -> None:
        """The place was left for another replica."""
        self._outcome = Outcome.HANDED_OVER

    def refused(self, error: BadRequest | Shed) -> Shedding:
        """Return what the client is told."""
        if isinstance(error, Shed):
            self._shedding = error.shedding
        else:
            refusal = Refusal.BODY_TOO_LARGE if isinstance(error, BodyTooLarge) else Refusal.INVALID_BODY
            self._shedding = Shedding(refusal, str(error), error.param)
            self._observer.refused_unread(refusal, self._class)
        self._outcome = self._shedding.refusal
        return self._shedding

    def refusal_headers(self) -> Mapping[str, str]:
        """Return the contract's headers of a refusal."""
        tokens = self._passage.estimate.reservation_tokens if self._passage else 0
        headers = _headers(self._class, self._elapsed_ms() if self._passage else 0, tokens)
        if self._shedding is not None:
            headers["x-forebay-reason"] = self._shedding.refusal.value
            if self._shedding.retry_after_s is not None:
                headers["retry-after"] = str(self._shedding.retry_after_s)
        return headers

    def close(self) -> None:
        """Write the line. The log has no prompt, key or token in it."""
        passage, grant = self._passage, self._grant
        if passage is None:
            tell = _log.debug if self._outcome == Outcome.UNMANAGED else _log.info
            tell("request", outcome=self._outcome, duration_ms=self._elapsed_ms())
            return
        _log.info(
            "request",
            outcome=self._outcome,
            request_id=passage.request.id,
            pool=passage.pool.name,
            model=passage.request.model,
            tenant=passage.request.flow.tenant,
            priority_class=self._class.name,
            prompt_tokens=passage.estimate.prompt_tokens,
            output_tokens=passage.estimate.output_tokens,
            wait_ms=grant.waited_ms if grant else self._elapsed_ms(),
            duration_ms=self._elapsed_ms(),
        )

    def _elapsed_ms(self) -> int:
        return math.floor((asyncio.get_running_loop().time() - self._started_s) * 1000)
