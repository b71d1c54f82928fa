"""The life of one replica: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import aiohttp
import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from redis.asyncio import Redis
from redis.exceptions import RedisError

from extproc.admin.http import application
from extproc.app.pool import Loop, PoolRuntime
from extproc.app.servers import bind, grpc_server, http_server
from extproc.backends.scraper import Scraper
from extproc.domain.errors import ConfigError
from extproc.domain.request import PriorityClass
from extproc.domain.response import Ended, UsageSource
from extproc.estimation import TiktokenEstimator
from extproc.ops.metrics import Metrics
from extproc.processor.gate import Gate, Identity, Pool
from extproc.processor.servicer import AccessLog, Processor, handlers
from extproc.settings import Settings, Trust
from extproc.waitqueue import GrantFeed
from extproc.waitqueue.client import check_store, connect, connect_feed

_FLUSH_S = 5.0  # last words to the store; what it does not hear by then expires there
_STOP_S = 2.0
_SPARE_CONNECTIONS = 2  # beside those of each pool's queue and lessons
_log = structlog.get_logger()


class Replica:
    """One process of the cluster.

    Args:
        settings: the whole configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._metrics = Metrics()
        self._estimator = TiktokenEstimator(settings.estimation)
        self._health = health.aio.HealthServicer()
        self._pools: list[PoolRuntime] = []
        self._is_serving = False
        self._is_draining = False

    async def run(self, stopping: asyncio.Event, *, on_ready: Callable[[dict[str, str]], None]) -> None:
        """Serve until `stopping` is set, then drain.

        Args:
            stopping: set by whoever wants the replica to end.
            on_ready: told of the addresses once requests are welcome.

        Raises:
            ConfigError: an address cannot be bound.
        """
        async with AsyncExitStack() as stack:
            stack.callback(self._estimator.close)
            await asyncio.to_thread(self._estimator.warm_up)
            loops = await self._wire(stack)
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(_endless(loop), name=name) for name, loop in loops]
                    await self._serve(stopping, on_ready)
                    for task in running:
                        task.cancel()
            except* ConfigError as group:
                raise ConfigError("; ".join(map(str, group.exceptions))) from group

    async def _wire(self, stack: AsyncExitStack) -> list[tuple[str, Loop]]:
        """Connect the rooms and return the loops to run, named; the stack closes what was opened."""
        session = await stack.enter_async_context(aiohttp.ClientSession())
        redis, pools = self._settings.redis, self._settings.pools
        client = connect(
            redis.url, timeout_s=redis.timeout_s, max_connections=2 * len(pools) + _SPARE_CONNECTIONS
        )
        feed_client = connect_feed(redis.url, timeout_s=redis.timeout_s)
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(feed_client.aclose)
        scraper = Scraper(session)
        self._pools = [
            PoolRuntime(
                pool,
                self._settings,
                client=client,
                replica=self.name,
                metrics=self._metrics,
                read_engines=scraper.kv_tokens,
                read_contexts=scraper.context_tokens,
            )
            for pool in pools
        ]
        feed = GrantFeed(
            feed_client,
            self.name,
            listeners={pool.settings.name: pool.mailbox.deliver for pool in self._pools},
            on_reconnect=self._renew_soon,
        )
        await self._question_store(client)
        loops: list[tuple[str, Loop]] = [("grant feed", feed.run)]
        for pool in self._pools:
            loops += [(f"{pool.settings.name}: {_name(loop)}", loop) for loop in await pool.start()]
        return loops

    async def _question_store(self, client: Redis) -> None:
        """Tell the operator what the store should not be like. One that is away now may come later."""
        try:
            async with asyncio.timeout(self._settings.redis.timeout_s * 4):
                warnings = await check_store(client)
        except (RedisError, OSError):
            return
        for warning in warnings:
            _log.warning("store", warning=warning)

    async def _serve(self, stopping: asyncio.Event, on_ready: Callable[[dict[str, str]], None]) -> None:
        server = grpc_server(self._settings.server)
        server.add_generic_rpc_handlers(
            handlers(Processor(self._gate(), self._metrics), AccessLog(self._note_ending))
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        addresses = bind(server, self._settings.server)
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        try:
            async with http_server(application(self), self._settings.server.http) as http:
                self._is_serving = True
                _log.info("serving", replica=self.name, ext_proc=addresses, http=http)
                on_ready({"ext_proc": addresses[0], "http": http})
                await stopping.wait()
                await self._drain(server)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):  # a server that was cancelled in its start never stops
                    await server.stop(0)

    async def _drain(self, server: grpc.aio.Server) -> None:
        """Take nothing new, finish what is held, give back the rest."""
        settings = self._settings.server
        self._is_draining = True
        others = any(await asyncio.gather(*(pool.has_company() for pool in self._pools)))
        _log.info("draining", others_alive=others)
        await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        for pool in self._pools:
            pool.admission.drain(can_hand_over=others)
        await self._until(lambda: not any(p.mailbox.waiting() for p in self._pools), settings.drain_wait_s)
        for pool in self._pools:
            pool.admission.shed_waiters()
        await self._until(lambda: not any(p.admission.holds_anything for p in self._pools), settings.drain_s)
        await server.stop(0)
        await self._until(lambda: all(p.outbox.is_empty for p in self._pools), _FLUSH_S)
        await asyncio.gather(*(pool.learning.flush() for pool in self._pools))
        _log.info("drained")

    @staticmethod
    async def _until(is_done: Callable[[], bool], most_s: float) -> None:
        """Wait for a condition that no event tells of, for a while."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + most_s
        while not is_done() and loop.time() < give_up_at:  # noqa: ASYNC110 - once in a process' life
            await asyncio.sleep(0.05)

    def _gate(self) -> Gate:
        settings = self._settings
        classes = {c.name: PriorityClass(c.name, c.rank) for c in settings.classes}
        identity = Identity(
            classes,
            classes[settings.default_class],
            trusts_priority=settings.headers.priority is Trust.TRUST,
            trusts_tenant=settings.headers.tenant is Trust.TRUST,
            reads_max_wait=settings.headers.max_wait is Trust.CLAMP,
        )
        pools = {pool.settings.name: pool.gate_pool() for pool in self._pools}

        def pool_for(model: str | None) -> Pool | None:
            found = settings.pool_for(model)
            return pools[found.name] if found is not None and found.mode != "off" else None

        return Gate(self._estimator, pool_for, identity, self._note_reading)

    def _renew_soon(self) -> None:
        for pool in self._pools:
            pool.upkeep.renew_soon()

    def _note_ending(self, ended: Ended) -> None:
        self._metrics.ended(ended.pool, ended.priority_class, ended.ending)
        self._learn(ended, UsageSource.ACCESS_LOG)
        _log.debug("response ended", ticket=ended.ticket, ending=ended.ending)

    def _note_reading(self, ended: Ended) -> None:
        """Take what was read of a response itself; the access log tells how many ended, and how."""
        self._learn(ended, UsageSource.STREAM)
        usage = asdict(ended.usage) if ended.usage else {}
        _log.debug("response read", ticket=ended.ticket, ending=ended.ending, **usage)

    def _learn(self, ended: Ended, source: UsageSource) -> None:
        for pool in self._pools:
            if pool.settings.name == ended.pool:
                pool.note(ended, source)

    @property
    def is_ready(self) -> bool:
        """True while requests should be sent here: not draining, and able to decide on them."""
        can_decide = self._settings.on_store_loss != "closed" or all(p.queue.is_up for p in self._pools)
        return self._is_serving and not self._is_draining and can_decide

    def status(self) -> dict[str, Any]:
        """Return the figures of `GET /api/v1/status`."""
        return {
            "replica": self.name,
            "version": version("forebay"),
            "is_ready": self.is_ready,
            "is_draining": self._is_draining,
            "pools": [pool.status() for pool in self._pools],
        }

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return self._metrics.exposition()


async def serve(settings: Settings, *, on_ready: Callable[[dict[str, str]], None] = lambda _: None) -> None:
    """Run a replica until SIGTERM or SIGINT; a second signal ends it at once.

    Raises:
        ConfigError: an address cannot be bound.
    """
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await Replica(settings).run(stopping, on_ready=on_ready)


async def _endless(loop: Loop) -> None:
    """Run a loop that may only end by being cancelled: one that stops unasked takes the process down."""
    await loop()
    raise RuntimeError(f"{_name(loop)} ended unasked")


def _name(loop: Loop) -> str:
    return getattr(loop, "__qualname__", repr(loop))
