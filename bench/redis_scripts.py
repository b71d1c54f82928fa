"""Measure what the queue's scripts cost inside Redis: `python bench/redis_scripts.py`.

One operation is one script, timed by Redis itself (INFO commandstats), on an embedded server of our own. The
figure is not a latency: network, client and waiting for Redis' one thread come on top.
"""  # noqa: INP001 - a script, not part of a package

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from extproc.admission.ports import Capacity, Holding, Ticket
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.simulator.store import find_server
from extproc.waitqueue import RedisQueue

WAITING = (10, 1_000, 50_000)
CALLS = 2_000
TOKENS = 100


def holding(name: str, max_wait_s: float = 60.0) -> Holding:
    """Return what one request would hold."""
    flow = FlowKey("tenant", PriorityClass("interactive", 0))
    return Holding(Ticket(InferenceRequest(name, "model", flow, max_wait_s), TOKENS, f"replica/{name}"))


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
    queue = RedisQueue(client, "bench", "replica", on_grant=lambda *_: None, timeout_s=30)
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


async def idle(client: Redis) -> float:
    """Return the mean of enqueue and leave where there is always room."""
    await client.flushall()
    queue = RedisQueue(client, "bench", "replica", on_grant=lambda *_: None, timeout_s=30)
    await queue.set_capacity(Capacity(None, 10**6))

    async def pass_through(number: int) -> None:
        await queue.enqueue(holding(f"r{number}"), max_requests=1)
        await queue.leave([(f"r{number}", f"replica/r{number}")])

    return await microseconds(client, pass_through)


async def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "redis.sock"
        command = [find_server(), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)  # noqa: ASYNC220, S603
        try:
            while not socket.exists():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
            async with Redis(unix_socket_path=str(socket), decode_responses=True) as client:
                table = Table("microseconds of Redis a script", *(f"{n:,} waiting" for n in WAITING))
                columns = [await measure(client, waiting) for waiting in WAITING]
                for verb in columns[0]:
                    table.add_row(verb, *(f"{column[verb]:.1f}" for column in columns))
                Console().print(table)
                Console().print(f"always room, enqueue and leave, mean: {await idle(client):.1f}")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    asyncio.run(main())
