"""Where lessons are kept: in Redis, for all replicas and across restarts, and a twin in memory."""

from extproc.lessons.memory_lessons import MemoryLessons
from extproc.lessons.redis_lessons import RedisLessons

__all__ = ["MemoryLessons", "RedisLessons"]
