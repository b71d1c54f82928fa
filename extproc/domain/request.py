"""The inference request as admission sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A configured level of service; a lower `rank` is served first.

    Attributes:
        name: as clients, metrics and logs spell it.
        rank: 0 to 1023 (see `extproc.domain.rank`).
    """

    name: str
    rank: int


@dataclass(frozen=True, slots=True)
class FlowKey:
    """Who shares fairly: the requests of one tenant in one priority class."""

    tenant: str
    priority_class: PriorityClass


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One inference call that wants to be admitted.

    Attributes:
        id: names the HTTP request in the whole cluster. Envoy's retry of an exchange carries the same
            id to another replica, which takes over the place in the queue.
        model: the model as the client wrote it.
        flow: tenant and priority class.
        max_wait_s: longest time in the queue, seconds; 0 means refuse rather than queue.
    """

    id: str
    model: str
    flow: FlowKey
    max_wait_s: float
