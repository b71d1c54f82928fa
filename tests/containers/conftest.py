"""What the end-to-end suite runs on here: containers instead of processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

pytest.register_assert_rewrite(
    "containers.stack", "e2e.test_bad_input", "e2e.test_losses", "e2e.test_main_job"
)

from containers.stack import Stack, build, run_stack, trouble  # noqa: E402 - after the line that prepares it


@pytest.fixture(scope="session")
def image() -> None:
    """Have the image built from this tree; without an engine nothing here can run."""
    if found := trouble():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no container engine: {found}")
    build()


@pytest.fixture
def demo(image: None, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Start systems that end with the test: `demo("--capacity-requests", "10")`."""
    with contextlib.ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(run_stack(tmp_path, *options, **more))


@pytest.fixture(scope="module")
def shared(image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One system for all tests of a module that leave it as they found it."""
    folder = tmp_path_factory.mktemp("stack")
    with run_stack(folder, "--speed", "10", "--capacity-tokens", "20000") as stack:
        yield stack


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        yield session
