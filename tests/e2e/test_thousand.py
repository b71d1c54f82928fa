"""A thousand requests held for a minute by one Envoy and one server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from e2e.harness import System, chat, post, until_held, until_nothing_is_held, until_waiting

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

HELD = 1000
HELD_S = 60
CONFIG = """
pools:
  - name: demo
    models: ["*"]
    capacity: {tokens: null, requests: 1}
    queue: {max_requests: 2000, max_wait_s: 300}
"""


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no process {pid}")


async def test_a_thousand_requests_are_held_for_a_minute_and_answered_in_order(
    demo, tmp_path: Path, record_property, capsys
) -> None:
    """Half of them are batch; all arrive while one request has the room for itself."""
    config = tmp_path / "forebay.yaml"
    config.write_text(CONFIG)
    system: System = demo("--gateways", "1", "--engines", "1", "--config", str(config))
    gateway = system.gateway(0)
    before = {kind: resident_mb(gateway[f"pid_{kind}"]) for kind in ("envoy", "extproc")}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        hog = asyncio.create_task(
            post(session, system.urls[0], chat(6000, ignore_eos=True), x_request_id="hog")
        )
        await until_held(system)
        tasks = []
        for n in range(HELD):
            priority = "batch" if n % 2 else "interactive"
            request = post(
                session,
                system.urls[0],
                chat(1, text="word " * 400),
                x_request_id=f"{priority}-{n}",
                x_forebay_priority=priority,
            )
            tasks.append(asyncio.create_task(request))
            if n % 50 == 49:
                await until_waiting(system, n + 1, timeout_s=30)
        await asyncio.sleep(HELD_S)
        assert system.held().waiting == HELD
        after = {kind: resident_mb(gateway[f"pid_{kind}"]) for kind in ("envoy", "extproc")}
        hog.cancel()
        answers = await asyncio.gather(*tasks)
    assert [status for status, _, _ in answers] == [200] * HELD
    served = [a["request_id"] for a in await system.arrivals() if a["request_id"] != "hog"]
    assert [r.split("-")[0] for r in served] == ["interactive"] * 500 + ["batch"] * 500
    ranks = {r: rank for rank, r in enumerate(served)}
    for n in range(2, HELD):  # those sent together may change places; those of two groups of fifty may not
        earlier = (n // 50) * 50 - 2 + n % 2
        if earlier >= 0:
            assert ranks[served_name(earlier)] < ranks[served_name(n)]
    await until_nothing_is_held(system, 5)
    with capsys.disabled():
        for kind, name in (("envoy", "Envoy"), ("extproc", "forebay serve")):
            grown = after[kind] - before[kind]
            print(
                f"\n{name}: {before[kind]:.0f} MB, with {HELD} held {after[kind]:.0f} MB ({grown * 1024 / HELD:.0f} KB each)"
            )


def served_name(n: int) -> str:
    return f"{'batch' if n % 2 else 'interactive'}-{n}"
