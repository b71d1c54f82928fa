"""The queue shared by all replicas: Lua scripts in Redis, their typed callers, and a twin in memory.

Whatever two replicas could disagree on (order, room, time) is decided in one script.
"""

from extproc.waitqueue.grant_feed import GrantFeed
from extproc.waitqueue.lifetimes import Lifetimes
from extproc.waitqueue.memory_queue import MemoryQueue
from extproc.waitqueue.memory_store import MemoryStore
from extproc.waitqueue.redis_queue import RedisQueue

__all__ = ["GrantFeed", "Lifetimes", "MemoryQueue", "MemoryStore", "RedisQueue"]
