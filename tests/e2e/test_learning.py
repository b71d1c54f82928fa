"""Every response teaches, by way of Envoy's own reading of it and its access log."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from e2e.harness import TAG, System, chat, post, until_held, until_nothing_is_held

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LIMIT = 4_000


def lessons(system: System) -> int:
    """How many lessons Redis holds of all tenants."""
    hashes = system.store.scan_iter(f"{TAG}habits:*:lasting")
    return sum(int(system.store.hget(key, "n") or 0) for key in hashes)


def ask(system: System, session, gateway: int, tenant: str, *, stream: bool = False, **more) -> asyncio.Task:
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    body = chat(LIMIT, text="word " * 50, stream=stream, **usage, **more)
    return asyncio.create_task(post(session, system.urls[gateway], body, x_forebay_tenant=tenant))


async def until_taught(system: System, wait_until, number: int) -> None:
    await wait_until(lambda: lessons(system) == number, timeout_s=10)


async def test_answers_of_both_gateways_make_the_next_reservation(demo, session, wait_until) -> None:
    system: System = demo("--speed", "20")
    answers = await asyncio.gather(
        *(ask(system, session, n % 2, "acme", stream=n % 4 < 2) for n in range(40))
    )
    assert {headers["x-forebay-reserved-tokens"] for _, headers, _ in answers} == {str(LIMIT + 58)}
    await until_taught(system, wait_until, 40)

    async def is_known() -> bool:
        """Ask again and again: each replica reads what was learned in its own time."""
        again = [await ask(system, session, gateway, "acme") for gateway in (0, 1)]
        return all(int(headers["x-forebay-reserved-tokens"]) < LIMIT / 4 for _, headers, _ in again)

    await wait_until(is_known, timeout_s=20)
    newcomer = await ask(system, session, 0, "newcomer")
    assert int(newcomer[1]["x-forebay-reserved-tokens"]) < LIMIT / 4
    await until_nothing_is_held(system, 2)
    assert system.keys_that_stay() == {f"{TAG}capacity"}


async def test_estimate_and_status_tell_what_was_learned(demo, session, wait_until) -> None:
    system: System = demo("--speed", "20", "--gateways", "1")
    await asyncio.gather(*(ask(system, session, 0, "acme") for _ in range(30)))
    await until_taught(system, wait_until, 30)
    command = [sys.executable, "-m", "extproc", "estimate", "--config", system.described["config"]]
    process = await asyncio.create_subprocess_exec(
        *command, "--tenant", "acme", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    told, _ = await process.communicate(json.dumps(chat(LIMIT, text="word " * 50)).encode())
    learnt = json.loads(told)["learnt"]
    assert (learnt["of"], learnt["samples"]) == ("this tenant", 30)
    assert learnt["prompt_ratio"] > 1  # the simulated engine's template is longer than ours

    async def is_shown() -> bool:
        async with session.get(f"{system.gateway(0)['admin']}/api/v1/status") as page:
            estimates = (await page.json())["pools"][0]["estimates"]
        return [(e["tenant"], e["lessons"]) for e in estimates] == [("acme", 30)]

    await wait_until(is_shown, timeout_s=10)


async def test_a_server_killed_while_an_answer_streams_neither_loses_nor_doubles_the_lesson(
    demo, session, wait_until
) -> None:
    system: System = demo()
    running = [ask(system, session, 0, "acme", stream=True, min_tokens=100) for _ in range(4)]
    await until_held(system, 4)
    system.kill("extproc", 0)
    assert [status for status, _, _ in await asyncio.gather(*running)] == [200] * 4
    await until_taught(system, wait_until, 4)
    await asyncio.sleep(1)
    assert lessons(system) == 4


async def test_an_answer_that_was_cut_off_teaches_no_length(demo, session, wait_until) -> None:
    system: System = demo("--speed", "20", "--gateways", "1")
    task = ask(system, session, 0, "acme", stream=True, ignore_eos=True)
    await until_held(system)
    task.cancel()
    await until_nothing_is_held(system, 2)
    await ask(system, session, 0, "other")
    await until_taught(system, wait_until, 1)
