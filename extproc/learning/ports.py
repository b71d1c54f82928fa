"""What learning needs from the outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from extproc.domain.lesson import Lesson


class HabitKey(NamedTuple):
    """Whose habits, with which model."""

    model: str
    tenant: str


@dataclass(frozen=True, slots=True)
class StoredHabits:
    """One tenant's counters with one model, as the store has them.

    Attributes:
        recent: counters that fade within 100 lessons.
        lasting: counters that fade within 2,000.
    """

    recent: Mapping[str, int]
    lasting: Mapping[str, int]


class LessonStore(Protocol):
    """Habits of one pool, shared by all replicas.

    Raises:
        QueueUnavailable: from every method, when the store does not answer in its time.
    """

    async def learn(self, key: HabitKey, lessons: Sequence[Lesson]) -> int:
        """Add lessons to one tenant's habits; return how many were new."""
        ...

    async def changed(self, since_ms: int, most: int) -> tuple[int, list[HabitKey]]:
        """Return whose habits changed at or after `since_ms`, the latest first, and the store's time now."""
        ...

    async def read(self, key: HabitKey) -> StoredHabits:
        """Return one tenant's counters; empty where there are none."""
        ...
