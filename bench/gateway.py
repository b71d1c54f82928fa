"""Measure what Forebay costs: `python bench/gateway.py [--quick]`, on Linux.

One operation is one POST of a chat completion that is admitted at once, through real Envoy, the server and
real Redis, its estimate included; the answer comes from another Envoy. It is compared with Envoy alone, in
turn, in the same minutes. Every figure is a median over rounds. docs/benchmarks.md tells what they are not.
"""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import uvloop
from gateway_rig import Rig, Run, running
from rich.console import Console
from rich.table import Table

from extproc.bench.report import percentile
from extproc.bench.wire import Latencies, closed_loop, open_loop, post
from extproc.bench.workload import BenchOptions, BodyTemplate, ClassLoad

SMALL_BYTES, LARGE_BYTES = 2_000, 900_000
CLIENTS = {SMALL_BYTES: 32, 64_000: 16, LARGE_BYTES: 4}
CONCURRENCY = (1, 8, 32, 64, 128)
SMALL_PER_S, LARGE_PER_S = 100.0, 4.0
FALLEN = 0.9  # of the best throughput at fewer clients; on a shared machine less is noise

Figure = Callable[[Run], float]
Load = Callable[[int], Awaitable[Latencies]]
"""Makes the load of a round, given its number."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How often everything is measured, and how long each time."""

    rounds: int
    closed_s: float
    open_s: float


THOROUGH = Plan(rounds=3, closed_s=4.0, open_s=6.0)
QUICK = Plan(rounds=2, closed_s=1.2, open_s=2.5)


class Section(NamedTuple):
    """One part of the report: a table, and lines of target, measured and whether that is good enough."""

    table: Table
    verdicts: list[tuple[str, str, bool]]


class Column(NamedTuple):
    """A figure of a table."""

    figure: Figure
    format: str


def latency(permille: int) -> Figure:
    """Return a percentile in ms; where a run is too short to have it, its largest."""

    def figure(run: Run) -> float:
        ordered = sorted(run.seen.ok_s)
        return (percentile(ordered, permille) or ordered[-1]) * 1000

    return figure


def cpu_us(*processes: str) -> Figure:
    """Return the processor time of a request."""
    return lambda run: 1e6 * sum(run.used.processes_s[name] for name in processes) / len(run.seen.ok_s)


def per_s(run: Run) -> float:
    """Return answers in a second."""
    return len(run.seen.ok_s) / run.seen.seconds


def cores(run: Run) -> float:
    """Return how many cores our own processes kept busy."""
    return sum(run.used.processes_s.values()) / run.seen.seconds


LATENCIES = {
    f"{name} ms": Column(latency(p), ".2f") for name, p in (("p50", 500), ("p95", 950), ("p99", 990))
}
OTHERS = {
    "failed": Column(lambda run: run.seen.failed, ".0f"),
    "cores: ours": Column(cores, ".2f"),
    "others'": Column(lambda run: run.used.others_s / run.seen.seconds, ".2f"),
}
COSTS = {
    "req/s": Column(per_s, ",.0f"),
    **LATENCIES,
    "Envoy us": Column(cpu_us("envoy", "envoy alone"), ",.0f"),
    "server us": Column(cpu_us("server"), ",.0f"),
    "Redis us": Column(cpu_us("redis"), ",.0f"),
    "client us": Column(cpu_us("client"), ",.0f"),
    "scripts/s": Column(lambda run: run.scripts / run.seen.seconds, ",.0f"),
    "us each": Column(lambda run: 1e6 * run.script_s / max(1, run.scripts), ".0f"),
    **OTHERS,
}


def median(runs: Sequence[Run], figure: Figure) -> float:
    """Return the median over runs."""
    return statistics.median(map(figure, runs))


def ratio(runs: Sequence[Run], bases: Sequence[Run], figure: Figure) -> str:
    """Return the median of the ratios to the runs next to them, and its extremes."""
    found = [figure(run) / figure(base) for run, base in zip(runs, bases, strict=True)]
    return f"x{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def tabulate(title: str, columns: Mapping[str, Column], rows: Mapping[str, Sequence[Run]]) -> Table:
    """Return a table of medians, a row for each set of runs."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    table.add_column()
    for name in columns:
        table.add_column(name, justify="right")
    for name, runs in rows.items():
        table.add_row(name, *(f"{median(runs, c.figure):{c.format}}" for c in columns.values()))
    return table


async def in_turn(rig: Rig, rounds: int, loads: Mapping[str, Load]) -> dict[str, list[Run]]:
    """Measure loads one after another, again and again: what disturbs one of them disturbs all."""
    runs: dict[str, list[Run]] = {name: [] for name in loads}
    for number in range(rounds):
        for name, load in loads.items():
            runs[name].append(await rig.measure(load(number)))
    return runs


_number = itertools.count()


def requests(size: int) -> Iterator[bytes]:
    """Return requests with bodies of a size, no prompt of which was there before."""
    options = BenchOptions(model="llama-70b", is_streaming=False, body_bytes=size)
    template = BodyTemplate(options, ClassLoad("interactive"))
    return (post("/v1/chat/completions", template.fill(number)) for number in _number)


async def costs(rig: Rig, plan: Plan, size: int) -> Section:
    """Measure throughput and processor time at one size of body."""

    def load(port: int) -> Load:
        return lambda _: closed_loop(port, requests(size), clients=CLIENTS[size], seconds=plan.closed_s)

    loads = {"Envoy alone": load(rig.alone), "with Forebay": load(rig.forebay)}
    runs = await in_turn(rig, plan.rounds, loads)
    alone, forebay = runs.values()
    table = tabulate(f"\n{size:,} bytes, {CLIENTS[size]} clients without pause", COSTS, runs)
    table.caption = f"req/s {ratio(forebay, alone, per_s)}, p50 {ratio(forebay, alone, latency(500))}"
    if size != SMALL_BYTES:
        return Section(table, [])
    server, redis = median(forebay, cpu_us("server")), median(forebay, cpu_us("redis"))
    return Section(
        table,
        [
            (f"server, a request of {size:,} bytes: < 700 us", f"{server:.0f} us", server < 700),
            (f"Redis, a request of {size:,} bytes: < 80 us", f"{redis:.0f} us", redis < 80),
        ],
    )


async def added_latency(rig: Rig, plan: Plan) -> Section:
    """Measure what a client waits longer at a moderate rate."""

    def load(port: int) -> Load:
        return lambda seed: open_loop(
            port, requests(SMALL_BYTES), rate_per_s=SMALL_PER_S, seconds=plan.open_s, seed=seed
        )

    loads = {"Envoy alone": load(rig.alone), "with Forebay": load(rig.forebay)}
    runs = await in_turn(rig, plan.rounds, loads)
    alone, forebay = runs.values()
    added = median(forebay, latency(500)) - median(alone, latency(500))
    title = f"\n{SMALL_BYTES:,} bytes, Poisson, {SMALL_PER_S:.0f} a second"
    verdict = (f"added p50 at {SMALL_PER_S:.0f}/s: < 3 ms", f"{added:.2f} ms", added < 3)
    return Section(tabulate(title, {**LATENCIES, **OTHERS}, runs), [verdict])


def lowest(rates: Sequence[float]) -> float:
    """Return the smallest ratio of a rate to the best before it."""
    return min(rate / max(rates[:index]) for index, rate in enumerate(rates) if index)


async def rising_concurrency(rig: Rig, plan: Plan) -> Section:
    """Measure whether throughput falls as clients become more."""

    def load(clients: int) -> Load:
        return lambda _: closed_loop(
            rig.forebay, requests(SMALL_BYTES), clients=clients, seconds=plan.closed_s * 0.75
        )

    runs = await in_turn(rig, plan.rounds, {str(clients): load(clients) for clients in CONCURRENCY})
    worst = lowest([median(found, per_s) for found in runs.values()])
    per_core = lowest([median(found, lambda run: per_s(run) / cores(run)) for found in runs.values()])
    title = f"\n{SMALL_BYTES:,} bytes with Forebay, by number of clients"
    measured = f"x{worst:.2f} at worst, x{per_core:.2f} for each core in use"
    verdict = ("throughput does not fall with more clients", measured, worst >= FALLEN)
    return Section(tabulate(title, COSTS, runs), [verdict])


async def beside_large_prompts(rig: Rig, plan: Plan) -> Section:
    """Measure how long small requests take through Forebay while large prompts are estimated.

    Carrying large bodies costs Envoy, the kernel and the client alike; so small ones are also measured while
    the same large ones go through the Envoy without Forebay. What is left is queue and estimate.
    """

    async def mixed(seed: int, large_port: int | None) -> Latencies:
        small = open_loop(
            rig.forebay, requests(SMALL_BYTES), rate_per_s=SMALL_PER_S, seconds=plan.open_s, seed=seed
        )
        if large_port is None:
            return await small
        large = open_loop(
            large_port, requests(LARGE_BYTES), rate_per_s=LARGE_PER_S, seconds=plan.open_s, seed=seed
        )
        seen, _ = await asyncio.gather(small, large)
        return seen

    loads: dict[str, Load] = {
        "alone": lambda seed: mixed(seed, None),
        "large ones pass Envoy alone": lambda seed: mixed(seed, rig.alone),
        "large ones pass Forebay": lambda seed: mixed(seed, rig.forebay),
    }
    runs = await in_turn(rig, plan.rounds, loads)
    _, carried, estimated = runs.values()
    delay = median(estimated, latency(990)) - median(carried, latency(990))
    title = (
        f"\n{SMALL_BYTES:,} bytes, {SMALL_PER_S:.0f} a second, beside {LARGE_PER_S:.0f} of {LARGE_BYTES:,}"
    )
    verdict = ("delay by a large prompt's estimate, p99: < 20 ms", f"{delay:.1f} ms", delay < 20)
    return Section(tabulate(title, {**LATENCIES, **OTHERS}, runs), [verdict])


async def sections(rig: Rig, plan: Plan) -> AsyncIterator[Section]:
    """Measure everything, part by part."""
    for port in (rig.alone, rig.forebay):  # connections, caches and the like are made once
        await closed_loop(port, requests(SMALL_BYTES), clients=8, seconds=0.5)
    for size in CLIENTS:
        yield await costs(rig, plan, size)
    yield await added_latency(rig, plan)
    yield await rising_concurrency(rig, plan)
    yield await beside_large_prompts(rig, plan)


async def main(plan: Plan) -> None:
    """Measure everything and print it as it comes."""
    console = Console(width=150, highlight=False)
    targets = Table(title="\nTargets", title_justify="left", box=None, show_header=False, pad_edge=False)
    console.print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; medians of {plan.rounds} rounds"
    )
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as directory:
        async with running(Path(directory)) as rig:
            before, started_s = rig.read(), time.perf_counter()
            async for section in sections(rig, plan):
                console.print(section.table)
                for target, measured, is_met in section.verdicts:
                    targets.add_row(target, measured, "met" if is_met else "[red]missed[/red]")
            others_s, took_s = rig.read().since(before).others_s, time.perf_counter() - started_s
    console.print(targets)
    console.print(f"\n{took_s:.0f} s. Other programs kept {others_s / took_s:.2f} cores busy meanwhile:")
    console.print(
        "that lengthens every latency and, through the caches that all share, every processor time."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute instead of four: rougher figures")
    uvloop.run(main(QUICK if parser.parse_args().quick else THOROUGH))
