"""Rank: the one integer by which waiters are ordered."""

from __future__ import annotations

# A sorted-set score is a double: integers are exact up to 2**53. Ten bits of class above 42 bits of
# arrival (milliseconds since 1970 until the year 2109) use 2**52 of it.
ARRIVAL_BITS = 42
ARRIVAL_SPAN = 1 << ARRIVAL_BITS
MAX_CLASS_RANK = (1 << 10) - 1


def rank(class_rank: int, arrival: int) -> int:
    """Return the place in the order: class first, arrival last; lower is served first.

    Args:
        class_rank: rank of the priority class, 0 to `MAX_CLASS_RANK`.
        arrival: the pool's arrival number, which never repeats and follows Redis time in milliseconds.

    Raises:
        ValueError: a part is out of its range.
    """
    if not 0 <= class_rank <= MAX_CLASS_RANK:
        raise ValueError(f"class rank {class_rank} is not in 0..{MAX_CLASS_RANK}")
    if not 0 <= arrival < ARRIVAL_SPAN:
        raise ValueError(f"arrival {arrival} does not fit {ARRIVAL_BITS} bits")
    return class_rank * ARRIVAL_SPAN + arrival


def class_rank_of(rank: int) -> int:
    """Return the class part of a rank."""
    return rank // ARRIVAL_SPAN
