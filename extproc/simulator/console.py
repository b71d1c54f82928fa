"""What a demo tells the person who started it. On standard error; standard output is for `--json`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console


class Story:
    """A start-up that can be read along.

    Args:
        is_quiet: tell only of trouble.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_quiet = is_quiet

    @contextmanager
    def step(self, what: str, where: str) -> Iterator[None]:
        """Tell of one step, and how long it took."""
        began = time.monotonic()
        yield
        if not self._is_quiet:
            took_ms = (time.monotonic() - began) * 1000
            self._console.print(f"  [green]✓[/green] {what:<10} {where} [dim]({took_ms:.0f} ms)[/dim]")

    def ready(self, system: dict[str, Any], model: str) -> None:
        """Tell what can be done."""
        if self._is_quiet:
            return
        url = system["gateways"][0]["url"]
        body = (
            f'{{"model": "{model}", "max_tokens": 32, "messages": [{{"role": "user", "content": "Hello"}}]}}'
        )
        say = self._console.print
        say("\n[bold]Forebay is up.[/bold] Send requests to any gateway:")
        for gateway in system["gateways"]:
            say(f"  {gateway['url']}/v1  [dim]admin page {gateway['admin']}/[/dim]")
        say("\nTry:\n")
        say(
            f"curl -i {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'", markup=False
        )
        say(f"\n[dim]Redis {system['redis']}, configuration {system['config']}[/dim]")
        say("[dim]Ctrl-C stops everything.[/dim]\n")

    def ended(self, name: str, pid: int, status: int | None) -> None:
        """Tell that a process is gone."""
        self._console.print(
            f"[yellow]{name} (pid {pid}) ended with status {status}; the others go on[/yellow]"
        )

    def stopping(self) -> None:
        """Tell that the end has begun."""
        if not self._is_quiet:
            self._console.print("Stopping …")
