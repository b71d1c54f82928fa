"""Connections to Redis, bounded in time, so that a silent store is as good as a dead one."""

from __future__ import annotations

import socket
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

_OLDEST = (6, 2)  # what the scripts are written for


def connect(url: str, *, timeout_s: float, max_connections: int) -> Redis:
    """Return a client for the scripts.

    One retry at once: a pooled connection that the server has closed meanwhile fails once and is made anew.
    All scripts may be run twice.

    No read timeout is set: redis-py waits for its writes with `asyncio.wait_for` then, and Python 3.11's
    swallows a cancellation that comes when the write is done already. The caller's budget covers a silent
    server (`Lane`).

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: for connecting, and for a place in the pool.
        max_connections: one for each `RedisQueue`, and one for each other call that runs at the same time.
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
        **_keepalive(url),
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
        retry=Retry(NoBackoff(), 0),  # `GrantFeed` retries, and must know
        decode_responses=True,
        **_keepalive(url),
    )


async def check_store(client: Redis) -> list[str]:
    """Return what an operator should know about a store before trusting it with the queue; empty if nothing.

    Raises:
        RedisError: the store cannot be asked.
    """
    facts: dict[str, Any] = await client.info()
    warnings = []
    if (policy := facts.get("maxmemory_policy", "noeviction")) != "noeviction":
        warnings.append(f"maxmemory-policy is {policy}: evicted keys lose the queue; set noeviction")
    if facts.get("role", "master") != "master":
        warnings.append(f"role is {facts['role']}: the scripts write; connect to the primary")
    if facts.get("cluster_enabled"):
        warnings.append("cluster mode is on: only pools whose slot is on this node work")
    version = str(facts.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        warnings.append(f"version is {version}: older than 6.2, which the scripts are written for")
    return warnings


def _keepalive(url: str) -> dict[str, Any]:
    """Return options that find a peer that vanished without a word within about 15 s."""
    if url.startswith("unix:"):
        return {}
    wanted = {"TCP_KEEPIDLE": 6, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}
    options = {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
    return {"socket_keepalive": True, "socket_keepalive_options": options}
