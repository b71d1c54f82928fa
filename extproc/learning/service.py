"""Learning for one pool: lessons out, habits in."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Protocol

from extproc.domain.errors import QueueUnavailable
from extproc.domain.habits import MIN_SAMPLES, Habits
from extproc.domain.lesson import (
    ACTUAL_OUTPUT,
    ACTUAL_PROMPT,
    EXPECTED_OUTPUT,
    EXPECTED_PROMPT,
    Lesson,
    lesson,
)
from extproc.domain.response import Ended
from extproc.domain.tokens import Usage
from extproc.learning.ports import HabitKey, LessonStore

_GATHER_S = 0.05  # lessons of one moment travel together; a server that is killed loses no more than these
_PERIOD_S = 1.0
_REFRESH_S = 5.0  # habits change slowly: nobody's are read more often
_MAX_PENDING = 200  # lessons of one period, or of a store that is away; more would say nothing new
_MAX_HABITS = 500  # tenants and models kept in this process
_MAX_READ = 20  # of them in one period, so that reading them takes no more than some milliseconds
_OVERLAP_MS = 3_000  # a lesson that was on its way, or a clock that steps, is looked for twice
_MAX_PEERS = 25

_COMPARED = (
    ("prompt", ACTUAL_PROMPT, EXPECTED_PROMPT),
    ("output", ACTUAL_OUTPUT, EXPECTED_OUTPUT),
)


class LearningObserver(Protocol):
    """Hears how right estimates were; returns at once and never raises."""

    def compared(self, kind: str, ratio: float) -> None:
        """A response took `ratio` times the tokens expected of its `kind`, `prompt` or `output`."""
        ...

    def taught(self, *, is_guess: bool) -> None:
        """A response taught; its engine told what it took, or its size did."""
        ...

    def calibrated(self, *, careful: int) -> None:
        """Habits were read; of so many tenants and models estimates are careful, for they were too low."""
        ...


class Learning:
    """What one replica knows of the habits of a pool's tenants.

    Args:
        store: shared by all replicas.
        observer: hears how right estimates were.
        refresh_s: least time between two readings of one tenant's habits.
    """

    def __init__(
        self, store: LessonStore, observer: LearningObserver, *, refresh_s: float = _REFRESH_S
    ) -> None:
        self._store = store
        self._observer = observer
        self._refresh_s = refresh_s
        self._pending: dict[str, Lesson] = {}
        self._taught = asyncio.Event()
        self._habits: OrderedDict[HabitKey, Habits] = OrderedDict()
        self._read_s: dict[HabitKey, float] = {}
        self._stale: dict[HabitKey, None] = {}
        self._read_until_ms = 0

    def habits(self, model: str, tenant: str) -> Habits | None:
        """Return what is known of a tenant; None for one that nothing is known of yet."""
        return self._habits.get(HabitKey(model, tenant))

    def peers(self, model: str) -> Sequence[Habits]:
        """Return what is known of others with the same model, for a tenant of whom too little is known."""
        same = (habits for key, habits in reversed(self._habits.items()) if key.model == model)
        enough = (habits for habits in same if habits.lessons >= MIN_SAMPLES)
        return [habits for habits, _ in zip(enough, range(_MAX_PEERS), strict=False)]

    def all_habits(self) -> dict[HabitKey, Habits]:
        """Return all that is known."""
        return dict(self._habits)

    def note(self, ended: Ended) -> None:
        """Take a lesson from a response, to be sent with the next batch."""
        usage = ended.usage or self._guess(ended)
        taught = lesson(ended, usage) if usage else None
        if taught is None:
            return
        for kind, actual, expected in _COMPARED:
            if expected in taught.counters:
                self._observer.compared(kind, taught.counters[actual] / taught.counters[expected])
        self._observer.taught(is_guess=usage is not None and usage.is_guess)
        if len(self._pending) < _MAX_PENDING:
            self._pending[taught.ticket] = taught
            self._taught.set()

    async def run(self) -> None:
        """Send and read until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self.step()
            next_s = loop.time() + _PERIOD_S
            while (left_s := next_s - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        await self._taught.wait()
                except TimeoutError:
                    break
                await asyncio.sleep(_GATHER_S)
                await self.flush()

    async def step(self) -> None:
        """Send what was gathered and read what changed. A store that is away is tried again."""
        await self.flush()
        with contextlib.suppress(QueueUnavailable):
            await self._read()

    async def flush(self) -> None:
        """Send what was gathered; what the store does not take now waits for the next time."""
        self._taught.clear()
        by_key: defaultdict[HabitKey, list[Lesson]] = defaultdict(list)
        for taught in self._pending.values():
            by_key[HabitKey(taught.model, taught.tenant)].append(taught)
        with contextlib.suppress(QueueUnavailable):
            for key, lessons in by_key.items():
                await self._store.learn(key, lessons)  # one that is sent twice teaches once
                for taught in lessons:
                    self._pending.pop(taught.ticket, None)

    async def _read(self) -> None:
        now_ms, changed = await self._store.changed(self._read_until_ms, _MAX_HABITS)
        self._read_until_ms = now_ms - _OVERLAP_MS
        self._stale |= dict.fromkeys(reversed(changed))
        now_s = asyncio.get_running_loop().time()
        due = [key for key in self._stale if now_s - self._read_s.get(key, -math.inf) >= self._refresh_s]
        for key in due[:_MAX_READ]:
            stored = await self._store.read(key)
            del self._stale[key]
            self._read_s[key] = now_s
            self._habits[key] = Habits(stored.recent, stored.lasting)
            self._habits.move_to_end(key)
        while len(self._habits) > _MAX_HABITS:
            forgotten, _ = self._habits.popitem(last=False)
            self._read_s.pop(forgotten, None)
        self._observer.calibrated(careful=sum(h.calibration.is_bad for h in self._habits.values()))

    def _guess(self, ended: Ended) -> Usage | None:
        """Return what a response took by its size, where its engine does not say."""
        foresight = ended.foresight
        habits = self.habits(foresight.model, foresight.tenant) if foresight else None
        tokens = habits.tokens_of(ended.body_bytes, is_streaming=ended.is_streaming) if habits else None
        return Usage(output_tokens=tokens, is_guess=True) if tokens else None
