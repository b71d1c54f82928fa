"""The twin of `RedisLessons` in memory: for tests, simulations, and to keep the script honest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from extproc.domain.lesson import LESSONS, Lesson
from extproc.learning.ports import HabitKey, StoredHabits

_RECENT, _LASTING = 100, 2000
_TAUGHT_MS, _KNOWN_MS = 600_000, 1_209_600_000
_MAX_KNOWN = 1000


class MemoryLessons:
    """A `LessonStore` for the replicas of one process; never raises `QueueUnavailable`.

    Args:
        clock_ms: milliseconds, never backwards.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._taught: dict[str, int] = {}
        self._known: dict[HabitKey, int] = {}
        self._recent: defaultdict[HabitKey, dict[str, int]] = defaultdict(dict)
        self._lasting: defaultdict[HabitKey, dict[str, int]] = defaultdict(dict)

    async def learn(self, key: HabitKey, lessons: Sequence[Lesson]) -> int:
        """Add lessons to one tenant's habits; see `LessonStore.learn`."""
        now_ms = self._clock_ms()
        self._taught = {ticket: until for ticket, until in self._taught.items() if until > now_ms}
        self._known = {k: last for k, last in self._known.items() if last > now_ms - _KNOWN_MS}
        if key not in self._known and len(self._known) >= _MAX_KNOWN:
            return 0
        learnt = 0
        for lesson in lessons:
            if lesson.ticket not in self._taught:
                self._taught[lesson.ticket] = now_ms + _TAUGHT_MS
                _add(self._recent[key], lesson.counters, _RECENT)
                _add(self._lasting[key], lesson.counters, _LASTING)
                learnt += 1
        if learnt:
            self._known[key] = now_ms
        return learnt

    async def changed(self, since_ms: int, most: int) -> tuple[int, list[HabitKey]]:
        """Return whose habits changed; see `LessonStore.changed`."""
        changed = [key for key, last in self._known.items() if last >= since_ms]
        return self._clock_ms(), sorted(changed, key=lambda key: -self._known[key])[:most]

    async def read(self, key: HabitKey) -> StoredHabits:
        """Return one tenant's counters; see `LessonStore.read`."""
        return StoredHabits(dict(self._recent[key]), dict(self._lasting[key]))


def _add(counters: dict[str, int], more: dict[str, int], bound: int) -> None:
    for name, increment in more.items():
        counters[name] = counters.get(name, 0) + increment
        if name == LESSONS and counters[name] >= bound:
            _halve(counters)


def _halve(counters: dict[str, int]) -> None:
    """Halve all counters; what the halves lose goes on to the next, so that rare ones do not all fade."""
    left = 0
    for name, count in list(counters.items()):
        half, left = divmod(count + left, 2)
        if half:
            counters[name] = half
        else:
            del counters[name]
