"""Worker threads with a line in front of them, for work that must not stop the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]


class _Done(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    fault: BaseException | None


class Lane(Generic[T]):
    """Runs jobs of one event loop in order, in threads of its own (for a batch, a second loop would not do).

    A pool of the standard library would do, but spends 44 to 58 us of processor time a job on two futures
    and their locks; this takes 16 to 27 (4 under load), in a budget of 150 for a whole 2 KB body.

    Args:
        name: of the threads.
        threads: how many.
        most_waiting: see `is_full`.
        batch: jobs a thread may do before it tells of the first: waking the event loop costs as much as a
            small job. More than one is for jobs that take no time worth speaking of.
    """

    def __init__(self, name: str, *, threads: int, most_waiting: int, batch: int = 1) -> None:
        self._most_waiting = most_waiting
        self._batch = batch
        self._unfinished = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_full(self) -> bool:
        """Whether as many jobs as wanted are unfinished; `run` takes more all the same."""
        return self._unfinished >= self._most_waiting

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Return what `work` will return or raise; cancelled before its turn, it is not begun.

        Raises:
            RuntimeError: the lane is closed.
        """
        if not self._threads:
            raise RuntimeError("the lane is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._unfinished += 1
        self._jobs.put(_Job(work, future))
        return future

    def close(self) -> None:
        """Finish what is in the line and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, done = job.future.get_loop(), [_do(job)]
            while len(done) < self._batch and (job := self._next()) is not None:
                done.append(_do(job))
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(self._deliver, done)
            del job, done  # the next wait may be long, and bodies are large

    def _next(self) -> _Job | None:
        """Return a job that is there already."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)  # the end, which `_serve` wants to see
        return job

    def _deliver(self, done: list[_Done]) -> None:
        self._unfinished -= len(done)
        for future, result, fault in done:
            if future.done():  # cancelled meanwhile
                continue
            if fault is None:
                future.set_result(result)
            else:
                future.set_exception(fault)


def _do(job: _Job) -> _Done:
    if job.future.cancelled():
        return _Done(job.future, None, None)
    try:
        return _Done(job.future, job.work(), None)
    except BaseException as raised:  # noqa: BLE001 - whatever it is, the waiter gets it
        return _Done(job.future, None, raised)
