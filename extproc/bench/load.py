"""An open-loop client: it sends when the time has come, however many answers are outstanding.

A client that waits for answers before it sends again slows down with the system that it measures, and so
leaves out the very requests that would have waited longest.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import aiohttp

from extproc.bench.result import OK, Result, Sample, describe
from extproc.bench.workload import Arrival, BenchOptions, arrivals

_TAIL_BYTES = 64
_DONE = b"[DONE]"
_ERROR_EVENT = b'"error":'  # inside of a text its quotes would be escaped
_HOPELESS_S = 5.0


async def run_bench(options: BenchOptions) -> Result:
    """Send the load and return what was seen of each request.

    Raises:
        ConfigError: the options contradict each other.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    timeout = aiohttp.ClientTimeout(total=options.timeout_s, sock_connect=_HOPELESS_S)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"content-type": "application/json", **dict(options.headers)}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        samples = await _send_all(session, options)
    reported = tuple(sample for sample in samples if sample.sent_s >= options.warmup_s)
    return Result(started_at, options.duration_s, describe(options), reported)


async def _send_all(session: aiohttp.ClientSession, options: BenchOptions) -> list[Sample]:
    plan = arrivals(options)
    start_s = time.perf_counter()  # uvloop's clock ticks in milliseconds
    async with asyncio.TaskGroup() as tasks:
        sending: list[asyncio.Task[Sample]] = []
        for arrival in plan:
            await asyncio.sleep(start_s + arrival.at_s - time.perf_counter())
            sending.append(
                tasks.create_task(_send(session, arrival, start_s, is_streaming=options.is_streaming))
            )
    return [task.result() for task in sending]


async def _send(
    session: aiohttp.ClientSession, arrival: Arrival, start_s: float, *, is_streaming: bool
) -> Sample:
    sent_s = time.perf_counter()
    seen = _Seen(is_streaming=is_streaming)
    headers = {"x-forebay-priority": arrival.load.name, "x-forebay-tenant": arrival.tenant}
    url = arrival.url.rstrip("/") + "/v1/chat/completions"
    try:
        async with session.post(url, data=arrival.body, headers=headers) as response:
            seen.head(response)
            async for chunk in response.content.iter_any():
                seen.chunk(chunk, time.perf_counter())
        outcome = seen.outcome()
    except TimeoutError:
        outcome = "timeout"
    except aiohttp.ClientConnectionError as error:
        outcome = "unreachable" if isinstance(error, aiohttp.ClientConnectorError) else "cut off"
    except aiohttp.ClientError:
        outcome = "cut off"
    return Sample(
        priority_class=arrival.load.name,
        sent_s=sent_s - start_s,
        late_s=sent_s - start_s - arrival.at_s,
        outcome=outcome,
        e2e_s=time.perf_counter() - sent_s,
        ttft_s=None if seen.first_at_s is None or not is_streaming else seen.first_at_s - sent_s,
        queue_wait_s=seen.queue_wait_s,
    )


class _Seen:
    """What a response has shown so far."""

    def __init__(self, *, is_streaming: bool) -> None:
        self.first_at_s: float | None = None
        self.queue_wait_s: float | None = None
        self._is_streaming = is_streaming
        self._status = 0
        self._reason = ""
        self._tail = b""
        self._has_error = False

    def head(self, response: aiohttp.ClientResponse) -> None:
        self._status = response.status
        self._reason = response.headers.get("x-forebay-reason", "")
        wait_ms = response.headers.get("x-forebay-queue-wait-ms", "")
        self.queue_wait_s = int(wait_ms) / 1000 if wait_ms.isdigit() else None

    def chunk(self, chunk: bytes, at_s: float) -> None:
        self.first_at_s = at_s if self.first_at_s is None else self.first_at_s
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        self._has_error |= _ERROR_EVENT in chunk

    def outcome(self) -> str:
        """Return how it ended. An engine may refuse a stream with 200 and an error in the first event."""
        if self._status != 200:
            return f"{self._status} {self._reason}".rstrip()
        if self._has_error:
            return "200 with an error"
        if self._is_streaming and not self._tail.rstrip().endswith(_DONE):
            return "cut off"
        return OK
