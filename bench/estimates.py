"""Show what learned estimates give: `python bench/estimates.py [--json FILE]`, two minutes on two cores.

Each table replays the same arrivals under every policy, in discrete events: the product's queue, forecasts
and lessons (`estimates_world.py`) before four simulated engines. Nothing sleeps and nothing depends on the
machine: the same seed gives the same figures. docs/estimation.md tells what they are not.
"""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from estimates_scenarios import Adaptation, Poisoning, longer_outputs, other_tokenizer, poisoned
from estimates_tenants import LONG_ANSWERS, TENANTS, Tenant, arrivals
from estimates_world import Course, Policy, Replay
from rich.console import Console
from rich.table import Table

from extproc.bench.report import percentile
from extproc.domain.forecast import Reserve

ENGINES = 4
WARMUP_SHARE = 0.2
GAIN, FEW = 1.25, 0.005
POLICIES = (
    Policy("limit", Reserve.LIMIT),
    Policy("learned", Reserve.MEAN),
    Policy("learned, 85 % of KV", Reserve.MEAN, capacity_share=0.85),
    Policy("occupancy", Reserve.OCCUPANCY),
    Policy("oracle", None),
)
Verdict = tuple[str, str, bool]
"""A target, what was measured, and whether it is met."""


@dataclass(frozen=True, slots=True)
class World:
    """What comes in.

    Attributes:
        title: in the report.
        tenants: who sends.
        rate_per_s: of arrivals. 100 % is what `learned` completes at saturation: 21 a second with chat, 10.8
            with long answers.
    """

    title: str
    tenants: Sequence[Tenant]
    rate_per_s: float


SATURATED = World("chat at 130 % load", TENANTS, 27.3)
BUSY = World("chat at 90 % load", TENANTS, 18.9)
LONG = World("long answers at 130 % load", LONG_ANSWERS, 14.0)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one run. KV errors are median absolute ones, shares of the capacity that may be booked.

    Attributes:
        world: what came in.
        policy: what was booked.
        tokens_per_s: prompts and outputs of completed requests.
        requests: completed.
        preemptions: by the engines.
        kv_use: stored in the KV caches, of their size, in the mean.
        waits_s: p50 and p99 in the queue, by class.
        first_token_s: p50 and p99 from arrival to the first token, interactive.
        final_error: booked against what the requests under way hold at their ends.
        final_bias: the same with its sign, in the mean; negative where too little is booked.
        stored_error: booked against what the engines store at the moment.
    """

    world: str
    policy: str
    tokens_per_s: float
    requests: int
    preemptions: int
    kv_use: float
    waits_s: dict[str, tuple[float, float]]
    first_token_s: tuple[float, float]
    final_error: float
    final_bias: float
    stored_error: float


def replay(
    world: World, policy: Policy, *, seconds: float = 600.0, engines: int = ENGINES, seed: int = 1
) -> Row:
    """Replay one policy."""
    coming = arrivals(world.rate_per_s * engines / ENGINES, seconds, seed=seed, tenants=world.tenants)
    run = Replay(policy, coming, engines=engines, seconds=seconds, warmup_s=seconds * WARMUP_SHARE)
    return row(world, asyncio.run(run.run()))


def row(world: World, course: Course) -> Row:
    """Return the figures of a run."""
    final = course.errors(lambda sample: sample.final)
    stored = course.errors(lambda sample: sample.stored)
    return Row(
        world.title,
        course.policy,
        course.tokens / course.seconds,
        course.requests,
        course.preemptions,
        statistics.fmean(sample.stored for sample in course.samples) / course.kv_tokens,
        {name: ends(waits) for name, waits in course.waits_s.items()},
        ends(course.first_tokens_s["interactive"]),
        statistics.median(map(abs, final)),
        statistics.fmean(final),
        statistics.median(map(abs, stored)),
    )


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile; the greatest where there are too few."""
    ordered = sorted(values)
    p50, p99 = percentile(ordered, 500), percentile(ordered, 990)
    return ordered[-1] if p50 is None else p50, ordered[-1] if p99 is None else p99


def tabulate(rows: Sequence[Row]) -> Table:
    """Return one world's table."""
    table = Table(title=f"\n{rows[0].world}", title_justify="left", box=None, pad_edge=False)
    table.add_column()
    for name in ("tokens/s", "x limit", "req", "pre-empted", "KV use", "interactive wait", "batch wait"):
        table.add_column(name, justify="right")
    for name in ("first token", "error: final", "bias", "error: stored"):
        table.add_column(name, justify="right")
    for found in rows:
        table.add_row(
            found.policy,
            f"{found.tokens_per_s:,.0f}",
            f"{found.tokens_per_s / rows[0].tokens_per_s:.2f}",
            f"{found.requests:,}",
            f"{found.preemptions:,} ({found.preemptions / found.requests:.1%})",
            f"{found.kv_use:.0%}",
            *(f"{p50:.1f} / {p99:.1f}" for p50, p99 in (*found.waits_s.values(), found.first_token_s)),
            f"{found.final_error:.1%}",
            f"{found.final_bias:+.1%}",
            f"{found.stored_error:.1%}",
        )
    return table


def throughput_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return whether learning gives what it should at saturation."""
    limit, learned, lower, *_ = rows
    return [
        gain(learned, limit, f"{limit.world}: learned >= {GAIN} x limit", most_preempted=1.0),
        gain(lower, limit, f"the same with < {FEW:.1%} pre-empted: 85 % of KV", most_preempted=FEW),
    ]


def gain(found: Row, limit: Row, target: str, *, most_preempted: float) -> Verdict:
    """Return whether a policy gives enough above `limit` at few enough pre-emptions."""
    times, preempted = found.tokens_per_s / limit.tokens_per_s, found.preemptions / found.requests
    return target, f"x{times:.3f}, {preempted:.1%} pre-empted", times >= GAIN and preempted < most_preempted


def error_verdicts(learned: Row) -> list[Verdict]:
    """Return whether what is booked tells what is in flight."""
    return [
        (
            f"{learned.world}: booked against stored KV < 10 %",
            f"{learned.stored_error:.1%}",
            learned.stored_error < 0.1,
        ),
        (
            f"{learned.world}: booked against final KV < 10 %",
            f"{learned.final_error:.1%}",
            learned.final_error < 0.1,
        ),
    ]


def scenario_verdicts(
    adapted: Sequence[Adaptation], poison: Poisoning, tokenizer_error: float
) -> list[Verdict]:
    """Return whether the small scenarios come out as they should."""
    reached = [a.requests for a in adapted]
    worst = None if None in reached else max(n for n in reached if n is not None)
    at_200 = statistics.median(a.course[200] for a in adapted)
    told = ", ".join("never" if n is None else str(n) for n in reached)
    newcomer = (
        f"newcomer's mean {poison.newcomer[0]:.0f} to {poison.newcomer[1]:.0f}"
        f" (poisoner's {poison.poisoner[1]:,.0f})"
    )
    return [
        (
            "outputs 4 x longer: within 20 % after <= 200 requests",
            f"{told} of 1,000; x{at_200:.2f} of the new mean after 200",
            worst is not None and worst <= 200,
        ),
        (
            "20 % poison, 100 x longer: others' estimates unchanged",
            f"{poison.changed} of {poison.asked:,} changed; {newcomer}",
            poison.changed == 0,
        ),
        (
            "tokenizer with 1.4 x the tokens: prompt error < 3 %",
            f"{tokenizer_error:.1%}",
            tokenizer_error < 0.03,
        ),
    ]


async def scenarios(seed: int) -> list[Verdict]:
    """Run the small scenarios."""
    adapted = [await longer_outputs(seed + number) for number in range(5)]
    return scenario_verdicts(adapted, await poisoned(seed), await other_tokenizer(seed))


def main(seconds: float, seed: int, to: Path | None) -> None:
    """Measure everything and print it as it comes."""
    console, started_s, found = Console(width=170, highlight=False), time.perf_counter(), list[Row]()
    verdicts: list[Verdict] = []
    console.print(
        f"{ENGINES} engines, {seconds:.0f} s, seed {seed}; waits p50 / p99 in s. KV errors, of the capacity:"
    )
    console.print(
        "final: booked against what requests under way hold at their ends; bias: the same with its sign;"
    )
    console.print("stored: booked against what the engines store at that moment.")
    with ProcessPoolExecutor(2) as pool:
        for world in (SATURATED, BUSY, LONG):
            rows = list(pool.map(partial(replay, world, seconds=seconds, seed=seed), POLICIES))
            console.print(tabulate(rows))
            found += rows
            verdicts += [] if world is BUSY else throughput_verdicts(rows)
            verdicts += [] if world is LONG else error_verdicts(rows[1])
    verdicts += asyncio.run(scenarios(seed))
    targets = Table(title="\nTargets", title_justify="left", box=None, show_header=False, pad_edge=False)
    for target, measured, is_met in verdicts:
        targets.add_row(target, measured, "met" if is_met else "[red]missed[/red]")
    console.print(targets, f"\n{time.perf_counter() - started_s:.0f} s")
    if to is not None:
        named = [dict(zip(("target", "measured", "is_met"), verdict, strict=True)) for verdict in verdicts]
        to.write_text(json.dumps({"rows": [as_json(r) for r in found], "targets": named}, indent=2) + "\n")


def as_json(found: Row) -> dict[str, object]:
    """Return a row's figures by name."""
    return {name: getattr(found, name) for name in Row.__slots__}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="simulated, of each run")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    main(options.seconds, options.seed, options.json)
