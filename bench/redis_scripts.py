"""Measure what the queue's scripts cost inside Redis: `python bench/redis_scripts.py`.

First table: one operation is one script, timed by Redis itself (INFO commandstats), on an embedded server of
our own. The figure is not a latency: network, client and waiting for Redis' one thread come on top.
Second table: the processor time of both processes for one request that finds room and leaves, system calls
included; median and range of the runs.
"""  # noqa: INP001 - a script, not part of a package

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from extproc.admission.ports import Capacity, Holding, Ticket
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.simulator.store import find_server
from extproc.waitqueue import Lifetimes, RedisQueue
from extproc.waitqueue.client import connect

WAITING = (10, 1_000, 50_000)
CALLS = 2_000
AT_ONCE = (1, 8, 64)
ROUNDS = 4_000
RUNS = 5
TOKENS = 100


def holding(name: str, max_wait_s: float = 60.0) -> Holding:
    """Return what one request would hold."""
    flow = FlowKey("tenant", PriorityClass("interactive", 0))
    return Holding(Ticket(InferenceRequest(name, "model", flow, max_wait_s), TOKENS, f"replica/{name}"))


def make_queue(client: Redis) -> RedisQueue:
    """Return a queue whose waiters do not expire for want of renewals."""
    lifetimes = Lifetimes(lease_ms=10**9, heartbeat_ms=10**9)
    return RedisQueue(client, "bench", "replica", on_grant=lambda *_: None, timeout_s=30, lifetimes=lifetimes)


async def microseconds(client: Redis, work: Callable[[int], Awaitable[object]]) -> float:
    """Return Redis' own time for each script that `work` runs, over `CALLS` rounds."""
    await client.config_resetstat()
    for number in range(CALLS):
        await work(number)
    stats = await client.info("commandstats")
    return float(stats["cmdstat_evalsha"]["usec_per_call"])


async def measure(client: Redis, waiting: int) -> dict[str, float]:
    """Return the cost of each verb with so many waiters in the queue."""
    await client.flushall()
    queue = make_queue(client)
    await queue.set_capacity(Capacity(TOKENS, None))
    await queue.enqueue(holding("hog"), max_requests=10**6)
    for number in range(waiting):
        await queue.enqueue(holding(f"waiter-{number}"), max_requests=10**6)

    async def enqueue(number: int) -> None:
        await queue.enqueue(holding(f"new-{number}"), max_requests=10**6)

    async def leave(number: int) -> None:
        await queue.leave([(f"new-{number}", f"replica/new-{number}")])

    held = "hog"

    async def hand_on(number: int) -> None:
        nonlocal held
        attempt = f"replica/{held}"
        await queue.enqueue(holding(f"tail-{number}"), max_requests=10**6)
        await queue.leave([(held, attempt)])
        held = f"waiter-{number}" if number < waiting else f"tail-{number - waiting}"

    return {
        "enqueue, queued": await microseconds(client, enqueue),
        "leave, while waiting": await microseconds(client, leave),
        "enqueue and leave with a grant, mean": await microseconds(client, hand_on),
        "sweep": await microseconds(client, lambda _: queue.sweep()),
        "state": await microseconds(client, lambda _: queue.state()),
    }


async def processor_time(client: Redis) -> tuple[float, float]:
    """Return the seconds that Redis' process and ours have spent on a processor."""
    info = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"]), time.process_time()


async def admit(queue: RedisQueue, client: Redis, at_once: int) -> tuple[float, float]:
    """Return microseconds of Redis' process and of ours for one request that comes, finds room and leaves."""
    numbers = iter(range(ROUNDS))

    async def pass_through() -> None:
        for number in numbers:
            await queue.enqueue(holding(f"r{number}"), max_requests=1)
            await queue.leave([(f"r{number}", f"replica/r{number}")])

    before = await processor_time(client)
    await asyncio.gather(*(pass_through() for _ in range(at_once)))
    after = await processor_time(client)
    redis_us, python_us = ((end - start) / ROUNDS * 1e6 for start, end in zip(before, after, strict=True))
    return redis_us, python_us


async def admissions(client: Redis) -> Table:
    """Return what an admitted request costs, system calls included, by how many come at once."""
    await client.flushall()
    queue = make_queue(client)
    await queue.set_capacity(Capacity(None, 10**6))
    for number in range(20):
        await queue.enqueue(holding(f"resident-{number}"), max_requests=1)
    table = Table("microseconds of a processor for one admitted request", "Redis", "Forebay")
    for at_once in AT_ONCE:
        runs = [await admit(queue, client, at_once) for _ in range(RUNS)]
        cells = (
            f"{median(side):.0f} ({min(side):.0f} to {max(side):.0f})" for side in zip(*runs, strict=True)
        )
        table.add_row(f"{at_once} at once", *cells)
    return table


async def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "redis.sock"
        command = [find_server(), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)  # noqa: ASYNC220, S603
        try:
            while not socket.exists():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
            async with connect(f"unix://{socket}", timeout_s=30, max_connections=16) as client:
                table = Table("microseconds of Redis a script", *(f"{n:,} waiting" for n in WAITING))
                columns = [await measure(client, waiting) for waiting in WAITING]
                for verb in columns[0]:
                    table.add_row(verb, *(f"{column[verb]:.1f}" for column in columns))
                Console().print(table)
                Console().print(await admissions(client))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    asyncio.run(main())
