"""How long the store believes in what nobody renews."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Milliseconds of the store's clock.

    Attributes:
        lease_ms: a lease; its tokens come back this long after its owner died.
        heartbeat_ms: a waiter's place, and a replica's standing: the grace for Envoy's retry to bring the
            request to another replica.
        max_gap_ms: a longer pause between sweeps means that the store was away.
    """

    lease_ms: int = 12_000
    heartbeat_ms: int = 6_000
    max_gap_ms: int = 3_000
