"""Clients bounded in time, and what to know of a store before trusting it."""

from __future__ import annotations

import asyncio
import socket

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from extproc.waitqueue.client import check_store, connect, connect_feed


async def test_a_plain_store_raises_no_warning(redis_client):
    assert await check_store(redis_client) == []


async def test_a_store_that_evicts_is_warned_of(own_store):
    async with connect(own_store.url, timeout_s=1.0, max_connections=2) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        [warning] = await check_store(client)
        assert "allkeys-lru" in warning
        assert "noeviction" in warning


async def test_a_replica_is_warned_of(own_store):
    async with connect(own_store.url, timeout_s=1.0, max_connections=2) as client:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        [warning] = await check_store(client)
        assert "connect to the primary" in warning


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/3", "rediss://user:pw@127.0.0.1:1/0", "unix:///nowhere"]
)
async def test_every_kind_of_url_is_understood_and_refused_at_once(url):
    async with asyncio.timeout(5), connect(url, timeout_s=1.0, max_connections=2) as client:
        with pytest.raises(RedisConnectionError):
            await client.ping()


async def test_a_tcp_store_works_as_well_as_a_unix_one(own_store):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with connect(own_store.url, timeout_s=1.0, max_connections=2) as client:
        await client.config_set("port", port)
    async with connect(f"redis://127.0.0.1:{port}/0", timeout_s=1.0, max_connections=2) as client:
        assert await client.ping()
    async with connect_feed(f"redis://127.0.0.1:{port}/0", timeout_s=1.0) as client:
        assert await client.ping()
