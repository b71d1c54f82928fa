"""What Forebay hears of the tokens that responses took, seen on real Envoy with recorded answers of vLLM."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from envoyconfig.conftest import RECORDED, Gateway

from extproc.envoyconfig import UsageFilter

AI, SSE, NONE = UsageFilter.AI_PROTOCOL_MANAGER, UsageFilter.SSE_TO_METADATA, UsageFilter.NONE
READERS = (AI, SSE)

# Recorded answer: its prompt, output and cached tokens, and who reads them.
TABLE: dict[str, tuple[tuple[int, int, int | None] | None, tuple[UsageFilter, ...]]] = {
    "chat.json": ((8, 8, None), (AI,)),
    "ok_completions.json": ((5, 4, None), (AI,)),
    "ok_responses.json": ((8, 4, 0), (AI,)),
    "ok_messages.json": ((6, 4, None), (AI,)),
    "chat_stream_usage.sse": ((8, 5, None), READERS),
    "chat_stream_continuous_usage.sse": ((8, 5, None), READERS),
    "completion_stream_usage.sse": ((3, 3, None), READERS),
    "responses_stream.sse": ((6, 3, 0), READERS),
    "messages_stream.sse": ((6, 3, None), READERS),
    "chat_stream_nousage.sse": (None, ()),
    "err_404_model.json": (None, ()),
}


async def ended(gateway: Gateway, wait_until: Any, number: int = 1) -> list[dict[str, Any]]:
    """Return what was heard of `number` responses, in the order of their requests."""
    await wait_until(lambda: len(gateway.seen("ended")) == number)
    by_ticket = {note["ticket"]: note for note in gateway.seen("ended")}
    return [by_ticket[note["ticket"]] for note in gateway.seen("request")]


@pytest.mark.parametrize("usage_filter", UsageFilter)
async def test_what_is_heard_of_recorded_answers(start_gateway, wait_until, usage_filter):
    gateway = await start_gateway(usage_filter=usage_filter)
    for name in TABLE:
        assert (await gateway.post({"replay": name})).body == (RECORDED / name).read_bytes()
    notes = await ended(gateway, wait_until, len(TABLE))
    heard = {
        name: tuple(note["usage"].values())[:3] if note["usage"] else None
        for name, note in zip(TABLE, notes, strict=True)
    }
    assert heard == {
        name: usage if usage_filter in readers else None for name, (usage, readers) in TABLE.items()
    }


async def test_a_stream_without_usage_tells_its_size_and_its_times(start_gateway, wait_until):
    gateway = await start_gateway()
    await gateway.post({"replay": "chat_stream_nousage.sse"})
    [note] = await ended(gateway, wait_until)
    assert (note["usage"], note["is_streaming"]) == (None, True)
    assert note["body_bytes"] == (RECORDED / "chat_stream_nousage.sse").stat().st_size
    assert 0 < note["first_byte_s"] <= note["duration_s"]


async def test_the_hold_is_not_part_of_the_duration(start_gateway, wait_until, tmp_path):
    gateway = await start_gateway()
    held = asyncio.create_task(gateway.post({"until": str(tmp_path / "go"), "replay": "chat.json"}))
    await wait_until(lambda: gateway.seen("request"))
    await asyncio.sleep(0.4)
    (tmp_path / "go").touch()
    await held
    [note] = await ended(gateway, wait_until)
    assert not note["is_streaming"]
    assert 0 < note["duration_s"] < 0.4


@pytest.mark.parametrize("usage_filter", READERS)
async def test_a_client_that_leaves_midway_gives_no_usage(start_gateway, wait_until, usage_filter):
    """Though the usage so far had passed."""
    gateway = await start_gateway(usage_filter=usage_filter)
    do = {"replay": "chat_stream_continuous_usage.sse", "midway": "wait"}
    async with gateway.session.post(f"{gateway.url}/v1/chat/completions", json=do) as response:
        first = await response.content.readany()
        assert b'"usage"' in first
        response.close()
    [note] = await ended(gateway, wait_until)
    gateway.engines[0].finish.set()
    assert (note["ending"], note["usage"], note["is_streaming"]) == ("client_gone", None, True)
    assert note["body_bytes"] >= len(first)
    assert note["duration_s"] > 0


@pytest.mark.parametrize("usage_filter", READERS)
@pytest.mark.parametrize("name", ["chat_stream_continuous_usage.sse", "chat.json"])
async def test_an_engine_that_breaks_off_gives_no_usage(start_gateway, wait_until, usage_filter, name):
    gateway = await start_gateway(usage_filter=usage_filter)
    do = {"replay": name, "midway": "break"}
    async with gateway.session.post(f"{gateway.url}/v1/chat/completions", json=do) as response:
        assert await response.content.readany()
    [note] = await ended(gateway, wait_until)
    assert (note["ending"], note["usage"]) == ("upstream_reset", None)


@pytest.mark.parametrize(
    ("usage_filter", "size", "reads"),
    [(AI, 3_000_000, True), (AI, 6_000_000, False), (SSE, 3_000_000, False)],
)
async def test_a_large_answer_is_neither_kept_back_nor_refused(
    start_gateway, wait_until, usage_filter, size, reads
):
    gateway = await start_gateway(usage_filter=usage_filter)
    do = {"filler": size, "midway": "wait"}
    async with gateway.session.post(f"{gateway.url}/v1/chat/completions", json=do) as response:
        begin = await response.content.readexactly(size // 4)  # while the engine has the second half yet
        gateway.engines[0].finish.set()
        whole = begin + await response.read()
    assert len(json.loads(whole)["choices"][0]["message"]["content"]) == size
    [note] = await ended(gateway, wait_until)
    assert (note["usage"] is not None, note["body_bytes"]) == (reads, len(whole))
