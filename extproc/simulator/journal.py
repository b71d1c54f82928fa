"""What came in, in order of arrival, for tests that must know what a gateway let through and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

_KEPT_ARRIVALS = 10_000


@dataclass(slots=True)
class Arrival:
    """One request to an inference endpoint, well formed or not.

    Attributes:
        seq: counts arrivals since the start, from 1.
        request_id: the `x-request-id` header.
        at: when its headers were read, seconds of the machine's monotonic clock.
        path: as called.
        headers: its `x-*` headers.
        model: as the body spells it.
        prompt_tokens: None until the body was understood.
        output_tokens: tokens produced by the time it ended; None until then.
        ended: None while it is in the engine; `error` when it was refused or a fault was played.
    """

    seq: int
    request_id: str | None
    at: float
    path: str
    headers: dict[str, str]
    model: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ended: Literal["complete", "aborted", "error"] | None = None


class Journal:
    """Keeps the last 10,000 arrivals."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque(maxlen=_KEPT_ARRIVALS)
        self._count = 0

    def open(self, *, path: str, headers: Mapping[str, str], at: float) -> Arrival:
        """Note an arrival; the caller fills in what it learns."""
        self._count += 1
        marks = {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-")}
        arrival = Arrival(self._count, marks.get("x-request-id"), at, path, marks)
        self._arrivals.append(arrival)
        return arrival

    def dump(self) -> list[dict[str, Any]]:
        """Return the arrivals, oldest first, ready for JSON."""
        return [asdict(arrival) for arrival in self._arrivals]
