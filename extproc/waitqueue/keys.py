"""Names of the Redis keys and channels of one pool."""

from __future__ import annotations

LAYOUT = "v1"
"""Version of the key layout: raised when the meaning of a stored byte changes, so that two releases
that disagree never share a queue."""

_KEYS = (
    "waiting",
    "leases",
    "heartbeats",
    "reservations",
    "requests",
    "totals",
    "capacity",
    "departed",
    "replicas",
)


def pool_keys(pool: str) -> tuple[str, ...]:
    """Return the keys of a pool in the order of `include/keys.lua`, all in one hash slot."""
    return tuple(f"{{forebay:{LAYOUT}:{pool}}}:{name}" for name in _KEYS)


def grants_channel(pool: str, replica: str) -> str:
    """Return the channel on which one replica hears of the grants of one pool."""
    return f"{{forebay:{LAYOUT}:{pool}}}:waiting:{replica}"
