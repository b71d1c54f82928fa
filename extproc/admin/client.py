"""Reads and shows a replica's status, for `forebay status` and `forebay top`."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from extproc.domain.errors import ConfigError


async def fetch_status(url: str) -> dict[str, Any]:
    """Return the status of the replica at `url`.

    Raises:
        ConfigError: nobody answers there, or something else does.
    """
    address = f"{url.rstrip('/')}/api/v1/status"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(address, raise_for_status=True) as response,
        ):
            figures: dict[str, Any] = await response.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise ConfigError(
            f"--url {url}: no forebay answers there ({error or type(error).__name__})"
        ) from error
    return figures


def table(status: dict[str, Any]) -> Table:
    """Return the status as a table: one row for each pool and class."""
    view = Table(title=f"{status['replica']}, version {status['version']}", title_justify="left")
    for heading in ("pool", "tokens in flight", "requests in flight", "class"):
        view.add_column(heading)
    for heading in ("waiting", "their tokens", "drain tok/s", "replicas", "store"):
        view.add_column(heading, justify="right")
    for pool in status["pools"]:
        lead = [
            f"{pool['name']} ({pool['mode']})",
            _part(pool["held"]["tokens"], pool["capacity"]["tokens"]),
            _part(pool["held"]["requests"], pool["capacity"]["requests"]),
        ]
        tail = [
            _number(pool["drain_tokens_per_s"]),
            _number(pool["replicas"]),
            "up" if pool["store_up"] else "[red]away[/red]",
        ]
        for name, waiting in pool["waiting"].items():
            view.add_row(*lead, name, _number(waiting["requests"]), _number(waiting["tokens"]), *tail)
            lead, tail = [""] * len(lead), [""] * len(tail)
    return view


def report(status: dict[str, Any]) -> Group:
    """Return all that a person wants to see of a status."""
    return Group(table(status), *(_estimates(pool) for pool in status["pools"] if pool["estimates"]))


def _estimates(pool: dict[str, Any]) -> Table:
    """Return how right a pool's estimates were, by model and tenant."""
    view = Table(title=f"{pool['name']}: tokens taken over tokens expected of late", title_justify="left")
    for heading in ("model", "tenant"):
        view.add_column(heading)
    for heading in ("lessons", "output bias", "output spread", "prompt bias", ""):
        view.add_column(heading, justify="right")
    for habit in pool["estimates"]:
        view.add_row(
            habit["model"],
            habit["tenant"],
            _number(habit["lessons"]),
            *(_ratio(habit[name]) for name in ("output_bias", "output_spread", "prompt_bias")),
            "[red]careful[/red]" if habit["is_careful"] else "",
        )
    return view


async def watch(url: str, every_s: float, console: Console) -> None:
    """Show the status again and again until cancelled."""
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(report(await fetch_status(url)), refresh=True)
            await asyncio.sleep(every_s)


def _part(held: int | None, most: int | None) -> str:
    return _number(held) if most is None else f"{_number(held)} of {_number(most)}"


def _ratio(value: float | None) -> str:
    return "?" if value is None else f"x{value:.2f}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
