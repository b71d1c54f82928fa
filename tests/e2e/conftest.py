"""Fixtures of the end-to-end and chaos suites."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from e2e.harness import System, run_demo

from extproc.domain.errors import ConfigError
from extproc.envoyconfig.binary import find_envoy


@pytest.fixture(scope="session", autouse=True)
def envoy_is_here() -> None:
    try:
        find_envoy()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Start demos that end with the test: `demo("--capacity-requests", "10")`."""
    with contextlib.ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(run_demo(tmp_path, *options, **more))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One demo for all tests of a module that leave it as they found it."""
    with run_demo(tmp_path_factory.mktemp("demo"), "--speed", "10", "--capacity-tokens", "20000") as system:
        yield system


@pytest.fixture
async def session(end_unsent) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=120)
    ) as session:
        yield session
    await end_unsent()
