"""Lessons in Redis."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from extproc.domain.errors import QueueUnavailable
from extproc.domain.lesson import Lesson
from extproc.learning.ports import HabitKey, StoredHabits

LAYOUT = "v1"
"""Version of the key layout: raised when the meaning of a stored byte changes."""

_BATCH = 50  # lessons a call: some 20 commands each, so that a script stays near a millisecond


class RedisLessons:
    """A `LessonStore` on the Redis that all replicas share.

    Nobody waits for it: it uses the client's connections, beside the queue's own.

    Args:
        client: connected lazily; decodes responses.
        pool: whose habits.
        timeout_s: budget of one call.
        clock_ms: hands the script a clock instead of Redis TIME; for tests.
    """

    def __init__(
        self,
        client: Redis,
        pool: str,
        *,
        timeout_s: float = 1.0,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._client = client
        self._prefix = f"{{forebay:{LAYOUT}:{pool}}}:habits"
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms
        source = (files("extproc.lessons") / "learn.lua").read_text(encoding="utf-8")
        self._learn = client.register_script(source)

    async def learn(self, key: HabitKey, lessons: Sequence[Lesson]) -> int:
        """Add lessons to one tenant's habits; see `LessonStore.learn`."""
        keys = [f"{self._prefix}:taught", f"{self._prefix}:known", *self._hashes(key)]
        learnt, now = 0, "" if self._clock_ms is None else self._clock_ms()
        for start in range(0, len(lessons), _BATCH):
            batch = [
                [one.ticket, [word for pair in one.counters.items() for word in pair]]
                for one in lessons[start : start + _BATCH]
            ]
            async with self._translated("learn"):
                learnt += await self._learn(keys, [now, orjson.dumps(list(key)), orjson.dumps(batch)])
        return learnt

    async def changed(self, since_ms: int, most: int) -> tuple[int, list[HabitKey]]:
        """Return whose habits changed; see `LessonStore.changed`."""
        known = f"{self._prefix}:known"
        async with self._translated("changed"), self._client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(known, "+inf", since_ms, desc=True, byscore=True, offset=0, num=most)
            (seconds, micros), members = await pipe.execute()
        now_ms = self._clock_ms() if self._clock_ms else seconds * 1000 + micros // 1000
        return now_ms, [HabitKey(*orjson.loads(member)) for member in members]

    async def read(self, key: HabitKey) -> StoredHabits:
        """Return one tenant's counters; see `LessonStore.read`."""
        async with self._translated("read"), self._client.pipeline(transaction=False) as pipe:
            for name in self._hashes(key):
                pipe.hgetall(name)
            recent, lasting = await pipe.execute()
        return StoredHabits(_counters(recent), _counters(lasting))

    def _hashes(self, key: HabitKey) -> tuple[str, str]:
        """Return the keys of one tenant's counters; names of any length and alphabet become 32 digits."""
        digest = hashlib.blake2b(orjson.dumps(list(key)), digest_size=16).hexdigest()
        return f"{self._prefix}:{digest}:recent", f"{self._prefix}:{digest}:lasting"

    @asynccontextmanager
    async def _translated(self, verb: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise QueueUnavailable(f"{verb}: {type(error).__name__}: {error}") from error


def _counters(pairs: dict[str, str]) -> dict[str, int]:
    return {name: int(count) for name, count in pairs.items()}
