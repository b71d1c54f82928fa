"""One replica's admission around a real queue, as `extproc.app.pool` wires it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from extproc.admission.failover import FailoverQueue, StoreLoss
from extproc.admission.mailbox import Mailbox
from extproc.admission.outbox import Outbox
from extproc.admission.ports import (
    Capacity,
    Holding,
    Placement,
    PoolState,
    Standing,
    Swept,
    WaitQueue,
)
from extproc.admission.service import Admission, Grant
from extproc.admission.upkeep import Upkeep
from extproc.domain.errors import QueueUnavailable
from extproc.domain.outcome import Refusal
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.domain.tokens import Estimate
from extproc.waitqueue import Lifetimes, MemoryQueue, MemoryStore

INTERACTIVE = PriorityClass("interactive", 0)
BATCH = PriorityClass("batch", 10)


def request(
    name: str, *, max_wait_s: float = 30.0, priority_class: PriorityClass = INTERACTIVE
) -> InferenceRequest:
    return InferenceRequest(name, "llama-70b", FlowKey("acme", priority_class), max_wait_s)


def loop_ms() -> int:
    """The loop's time as a store's clock, so that virtual time moves both."""
    return 1_800_000_000_000 + round(asyncio.get_running_loop().time() * 1000)


class Heard:
    """An `Observer` that remembers what it was told."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.swept_leases = 0
        self.states: list[PoolState] = []

    def admitted(self, request: InferenceRequest, wait_s: float) -> None:
        self.words.append(f"admitted {request.id} after {wait_s:g}")

    def shed(self, request: InferenceRequest, refusal: Refusal) -> None:
        self.words.append(f"shed {request.id}: {refusal}")

    def withdrawn(self, request: InferenceRequest) -> None:
        self.words.append(f"withdrawn {request.id}")

    def handed_over(self, request: InferenceRequest) -> None:
        self.words.append(f"handed over {request.id}")

    def swept(self, swept: Swept) -> None:
        self.swept_leases += swept.leases

    def saw(self, state: PoolState) -> None:
        self.states.append(state)

    def store_changed(self, *, is_up: bool) -> None:
        self.words.append("store back" if is_up else "store lost")


class Fickle:
    """A shared queue whose store is away when told; otherwise the real one behind it."""

    def __init__(self, queue: WaitQueue) -> None:
        self.behind = queue
        self.is_away = False
        self.fails_once = False
        self.delay_s = 0.0
        self.replicas = 1
        self.calls: list[str] = []

    async def _reach(self, name: str) -> WaitQueue:
        self.calls.append(name)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.is_away or self.fails_once:
            self.fails_once = False
            raise QueueUnavailable(f"{name}: away")
        return self.behind

    async def enqueue(self, holding: Holding, *, max_requests: int) -> Placement:
        return await (await self._reach("enqueue")).enqueue(holding, max_requests=max_requests)

    async def leave(self, tickets: Sequence[tuple[str, str]]) -> None:
        await (await self._reach("leave")).leave(tickets)

    async def renew(self, holdings: Sequence[Holding]) -> list[Standing]:
        return await (await self._reach("renew")).renew(holdings)

    async def sweep(self) -> Swept:
        return await (await self._reach("sweep")).sweep()

    async def set_capacity(self, capacity: Capacity) -> None:
        await (await self._reach("set_capacity")).set_capacity(capacity)

    async def state(self) -> PoolState:
        return await (await self._reach("state")).state()


class World:
    """One replica. `queue` decides; `heard` is what the observer was told.

    Args:
        queue: makes the queue from the replica's mailbox; a queue in memory of its own if absent.
        tokens: the pool's capacity, for a queue of its own.
        requests: likewise.
        replica: its name.
        max_requests: waiters it takes.
        store: what a queue in memory shares with other worlds.
        heartbeat: runs the upkeep too.
        sweep_every_s: of the upkeep.
        renew_every_s: likewise.
    """

    def __init__(
        self,
        *,
        queue: Callable[[World], WaitQueue] | None = None,
        tokens: int | None = 100,
        requests: int | None = None,
        replica: str = "a",
        max_requests: int = 512,
        store: MemoryStore | None = None,
        heartbeat: bool = False,
        sweep_every_s: float = 1.0,
        renew_every_s: float = 3.0,
    ) -> None:
        self.replica = replica
        self.heard = Heard()
        self.mailbox = Mailbox(self._bounce)
        self.store = store or MemoryStore(loop_ms, Lifetimes(), Capacity(tokens, requests))
        self.memory = MemoryQueue(self.store, replica, on_grant=self.mailbox.deliver)
        self.queue: Any = queue(self) if queue else self.memory
        self.outbox = Outbox(self.queue)
        self.admission = Admission(
            self.queue, self.mailbox, self.outbox, self.heard, replica=replica, max_requests=max_requests
        )
        self.upkeep = Upkeep(
            self.queue,
            self.mailbox,
            self.admission,
            self.heard,
            sweep_every_s=sweep_every_s,
            renew_every_s=renew_every_s,
        )
        self._heartbeat = heartbeat

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        """Deliver what is given back; afterwards nothing may be held here."""
        loops = [asyncio.create_task(self.outbox.run())]
        if self._heartbeat:
            loops.append(asyncio.create_task(self.upkeep.run()))
        try:
            yield self
            while not self.outbox.is_empty:  # noqa: ASYNC110 - what the outbox does is what is tested
                await asyncio.sleep(0.001)
            assert self.mailbox.is_empty
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.wait(loops)

    def ask(
        self, name: str, tokens: int = 60, *, can_move: bool = False, **kwargs: Any
    ) -> asyncio.Task[Grant]:
        """Ask for admission and, once admitted, hold until the task is cancelled by `end`."""
        held = asyncio.Event()

        async def hold() -> Grant:
            estimate = Estimate(tokens, 0)
            wanted = request(name, **kwargs)
            async with self.admission.admit(wanted, estimate, can_move=can_move) as grant:
                held.set()
                await task.ends.wait()  # type: ignore[attr-defined]
                return grant

        task = asyncio.create_task(hold(), name=name)
        task.held, task.ends = held, asyncio.Event()  # type: ignore[attr-defined]
        return task

    def _bounce(self, request_id: str, attempt: str) -> None:
        self.outbox.post(request_id, attempt)

    def renew_soon(self) -> None:
        """Told by a store that has lost its memory."""
        self.upkeep.renew_soon()

    @staticmethod
    def is_held(task: asyncio.Task[Grant]) -> bool:
        """True once an `ask` was admitted."""
        return bool(task.held.is_set())  # type: ignore[attr-defined]

    @staticmethod
    async def end(task: asyncio.Task[Grant]) -> Grant:
        """End the response of an admitted `ask`."""
        task.ends.set()  # type: ignore[attr-defined]
        return await task


def failover(
    world: World,
    primary: Any,
    *,
    policy: StoreLoss,
    replicas: int = 1,
    made: list[MemoryStore] | None = None,
) -> FailoverQueue:
    """Wrap a queue as `extproc.app.pool` does; `made` collects the stores of local queues."""

    def make_local(capacity: Capacity, sharers: int) -> MemoryQueue:
        store = MemoryStore(loop_ms, Lifetimes(), capacity, sharers)
        if made is not None:
            made.append(store)
        return MemoryQueue(store, world.replica, on_grant=world.mailbox.deliver)

    return FailoverQueue(
        primary, world.mailbox, world.heard, policy=policy, make_local=make_local, replicas=lambda: replicas
    )
