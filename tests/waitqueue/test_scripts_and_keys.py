"""What is stored, and how the scripts are written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.crc import key_slot

from extproc.waitqueue import scripts
from extproc.waitqueue.keys import grants_channel, pool_keys

FOLDER = Path(scripts.__file__).parent


async def test_outsiders_can_count_what_is_in_flight(redis_cluster, redis_client):
    a, _ = await redis_cluster.two_replicas(tokens=1000, requests=9)
    await a.ask("r0", 700)
    await a.ask("r1", 200)
    await a.ask("r2", 300)
    prefix = "{forebay:v1:llama-70b}:"
    assert await redis_client.zcard(f"{prefix}leases") == 2
    assert await redis_client.hgetall(f"{prefix}reservations") == {"r0": "700", "r1": "200"}
    assert await redis_client.zrange(f"{prefix}waiting", 0, -1) == ["r2"]
    assert await redis_client.hgetall(f"{prefix}capacity") == {"tokens": "1000", "requests": "9"}


async def test_all_keys_expire_from_the_first_moment_but_the_capacity(redis_cluster, redis_client):
    a, b = await redis_cluster.two_replicas(tokens=100)
    await a.ask("r0")
    await b.ask("r1")
    await b.queue.leave([("r9", "b/9")])
    await a.renew()
    lifetimes = {key: await redis_client.ttl(key) for key in pool_keys("llama-70b")}
    assert {key for key, seconds in lifetimes.items() if seconds == -1} == {"{forebay:v1:llama-70b}:capacity"}
    assert -2 not in lifetimes.values(), "a key is not in use any more"


async def test_nothing_but_the_capacity_is_left_when_all_have_gone(redis_cluster, redis_client):
    a, _ = await redis_cluster.two_replicas(tokens=100)
    for n in range(3):
        await a.ask(f"r{n}")
    await a.leave(*list(a.holdings))
    left = {key.rpartition(":")[2] for key in await redis_client.keys("*")}
    assert left <= {"capacity", "totals", "replicas"}


def test_pools_do_not_see_each_other():
    keys, other = set(pool_keys("a")), set(pool_keys("b"))
    assert not keys & other
    assert len({key_slot(key.encode()) for key in keys}) == 1, "one pool is one hash slot"
    assert grants_channel("a", "r") not in keys


@pytest.mark.parametrize("name", [script.name for script in scripts.ALL])
def test_a_script_is_short_and_says_what_it_returns(name):
    lines = (FOLDER / f"{name}.lua").read_text().splitlines()
    assert len(lines) < 80
    assert any(line.startswith("  Returns {") for line in lines)


def test_every_include_is_used_and_short():
    sources = "".join(script.source for script in scripts.ALL)
    for include in (FOLDER / "include").glob("*.lua"):
        assert include.read_text() in sources
        assert len(include.read_text().splitlines()) < 80


def test_no_include_is_left_unresolved():
    assert not [script.name for script in scripts.ALL if "@include" in script.source]


def test_arguments_that_do_not_follow_the_header_are_found_at_import():
    class Wrong(NamedTuple):
        lease_ms: int
        max_gap_ms: int
        heartbeat_ms: int

    with pytest.raises(ValueError, match=r"sweep\.lua: the header must describe ARGV .*'max_gap_ms'"):
        scripts.load("sweep", Wrong)


def test_the_lua_has_no_global_and_no_typo(tmp_path):
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        pytest.skip("no luacheck on this machine")
    subprocess.run([sys.executable, "-m", "extproc.waitqueue", tmp_path], check=True)
    names = ["redis", "KEYS", "ARGV", "cmsgpack", "struct"]
    command = [luacheck, "--no-color", "--std", "lua51", "--read-globals", *names, "--ignore", "211", "--"]
    result = subprocess.run([*command, *tmp_path.glob("*.lua")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
