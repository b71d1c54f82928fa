"""Connections to Redis: bounded in number and in time, so that a silent store is as good as a dead one."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError


def connect(url: str, *, timeout_s: float, max_connections: int) -> Redis:
    """Return a client for the scripts.

    One retry at once: a pooled connection that the server has closed meanwhile fails once and is made anew.
    All scripts may be run twice.

    No read timeout is set: redis-py waits for its writes with `asyncio.wait_for` then, and Python 3.11's
    swallows a cancellation that comes when the write is done already. The caller's budget covers a silent
    server (`RedisQueue._call`).

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: for connecting, and for a place in the pool.
        max_connections: calls that run at once.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 1),
        retry_on_error=[RedisConnectionError],
        decode_responses=True,
    )
    return Redis.from_pool(pool)


def connect_feed(url: str, *, timeout_s: float) -> Redis:
    """Return a client for the subscription to grants: one connection that may be silent for long.

    Args:
        url: as for `connect`.
        timeout_s: for connecting only.
    """
    return Redis.from_url(
        url,
        socket_timeout=None,
        socket_connect_timeout=timeout_s,
        health_check_interval=5,
        decode_responses=True,
    )
