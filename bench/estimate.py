"""Measure token estimation: `python bench/estimate.py [--seconds S]`.

One operation is one `TiktokenEstimator.appraise`: reading the body, counting its tokens and both hops
between the event loop and the worker thread. Processor time is that of the whole process; the median is
over rounds. It is not a figure for a request through Envoy, which costs several times as much.
"""
# ruff: noqa: INP001, T201 - a script, and reporting is what it does

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import statistics
import time
from collections.abc import Callable, Iterator

import orjson
import uvloop

from extproc.dialects import Endpoint, recognise
from extproc.estimation import TiktokenEstimator

SENTENCE = "The quarterly revenue grew by 12.5% compared with 2023, driven by new customers; costs fell. "
_number = itertools.count()


def chat(size: int, *, turns: int = 4, fresh: bool = True) -> bytes:
    """Return a chat body of about `size` bytes; a fresh one shares no message with any other."""
    each = (size - 120) // turns - 40
    mark = f"{next(_number)}: " if fresh else ""
    text = (mark + SENTENCE * (each // len(SENTENCE) + 1))[:each]
    return chat_of([f"{index}{text}" for index in range(turns)])


def chat_of(contents: list[str]) -> bytes:
    """Return a chat body with these messages."""
    roles = itertools.chain(["system"], itertools.cycle(["user", "assistant"]))
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return orjson.dumps({"model": "llama-70b", "messages": messages, "max_tokens": 256, "stream": True})


async def cost(name: str, endpoint: Endpoint, bodies: Callable[[], bytes], *, rounds: int, each: int) -> None:
    """Print median latency and processor time of one appraisal after another."""
    estimator = TiktokenEstimator()
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(rounds):
        batch = [bodies() for _ in range(each)]
        cpu = time.process_time()
        for body in batch:
            start = time.perf_counter()
            await estimator.appraise(endpoint, body)
            walls.append(time.perf_counter() - start)
        cpus.append((time.process_time() - cpu) / each)
    estimator.close()
    spread = f"{min(cpus) * 1e6:,.0f} to {max(cpus) * 1e6:,.0f}"
    print(
        f"{name:34} latency p50 {statistics.median(walls) * 1e6:9,.0f} us   "
        f"cpu {statistics.median(cpus) * 1e6:9,.0f} us ({spread})"
    )


def large_bodies(text: str) -> Iterator[bytes]:
    """Yield 900 KB bodies that share no message; making one is one copy, so that it hardly disturbs."""
    head, tail = chat_of(["NUMBER " + (text * (900_000 // len(text) + 1))[:900_000]]).split(b"NUMBER")
    for number in itertools.count():
        yield b"%b%d%b" % (head, number, tail)


async def delay(name: str, endpoint: Endpoint, seconds: float, large: Iterator[bytes] | None) -> None:
    """Print how long 2 KB bodies take at 200 a second, alone or while four clients send large ones."""
    estimator = TiktokenEstimator()
    waits: list[float] = []
    stop = time.perf_counter() + seconds
    done = 0

    async def burn(bodies: Iterator[bytes]) -> None:
        nonlocal done
        while time.perf_counter() < stop:
            await estimator.appraise(endpoint, next(bodies))
            done += 1

    async def one(body: bytes) -> None:
        start = time.perf_counter()
        await estimator.appraise(endpoint, body)
        waits.append(time.perf_counter() - start)

    tasks = [asyncio.create_task(burn(large)) for _ in range(4)] if large else []
    while time.perf_counter() < stop:
        tasks.append(asyncio.create_task(one(chat(2_000))))
        await asyncio.sleep(1 / 200)
    await asyncio.gather(*tasks)
    estimator.close()
    cuts = statistics.quantiles(waits, n=100)
    print(
        f"2 KB {name:29} p50 {cuts[49] * 1e3:.2f} ms   p99 {cuts[98] * 1e3:.2f} ms   "
        f"max {max(waits) * 1e3:.2f} ms   ({len(waits)} small, {done / seconds:.0f} large/s)"
    )


async def main(seconds: float) -> None:
    """Run all measurements."""
    endpoint = recognise("/v1/chat/completions")
    assert endpoint is not None  # noqa: S101 - a script
    estimator = TiktokenEstimator()
    start = time.perf_counter()
    estimator.warm_up()
    estimator.close()
    print(f"warm-up {time.perf_counter() - start:.2f} s")
    await cost("2 KB, 4 messages, new", endpoint, lambda: chat(2_000), rounds=9, each=200)
    await cost("2 KB, 1 message, new", endpoint, lambda: chat(2_000, turns=1), rounds=9, each=200)
    await cost("2 KB, 4 messages, seen", endpoint, lambda: chat(2_000, fresh=False), rounds=9, each=200)
    await cost("64 KB, 20 messages, new", endpoint, lambda: chat(64_000, turns=20), rounds=5, each=20)
    history = orjson.loads(chat(64_000, turns=20))
    await cost("64 KB, 20 messages, one new", endpoint, lambda: next_turn(history), rounds=5, each=20)
    await cost("900 KB, 1 message, new", endpoint, lambda: chat(900_000, turns=1), rounds=5, each=5)
    await cost("900 KB, 200 messages, new", endpoint, lambda: chat(900_000, turns=200), rounds=5, each=5)
    letters = large_bodies("a")
    await cost("900 KB of one letter, new", endpoint, lambda: next(letters), rounds=5, each=5)
    await cost("900 KB, seen", endpoint, lambda: chat(900_000, turns=1, fresh=False), rounds=5, each=5)
    await delay("alone", endpoint, seconds, None)
    await delay("beside 900 KB of English", endpoint, seconds, large_bodies(SENTENCE))
    await delay("beside 900 KB of one letter", endpoint, seconds, large_bodies("a"))
    print(f"resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


def next_turn(history: dict[str, list[dict[str, str]]]) -> bytes:
    """Return the history with a new last message."""
    last = {"role": "user", "content": f"{next(_number)} {SENTENCE * 3}"}
    return orjson.dumps({**history, "messages": [*history["messages"], last]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each delay measurement")
    uvloop.run(main(parser.parse_args().seconds))
