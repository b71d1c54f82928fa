"""Responses read as they pass through real Envoy, next to the same responses unread."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from e2e.harness import until_nothing_is_held
from envoyconfig.conftest import RECORDED, Engine

pytestmark = pytest.mark.e2e

POOLS = {
    "unread": {"usage": "off"},
    "read": {"usage": "stream"},
    "asking": {"usage": "stream", "stream_usage": "inject"},
    "logged": {"usage": "access_log", "stream_usage": "inject"},
}
USAGE = {
    "chat.json": (8, 8, None),
    "ok_responses.json": (8, 4, 0),
    "ok_messages.json": (6, 4, None),
    "chat_stream_usage.sse": (8, 5, None),
    "chat_stream_continuous_usage.sse": (8, 5, None),
    "chat_stream_nousage.sse": (None, 5, None),
    "responses_stream.sse": (6, 3, 0),
    "messages_stream.sse": (6, 3, None),
}


class Echo(Engine):
    """Tells what it got where a body has `echo`; can be broken off."""

    transport: asyncio.Transport

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.transport = request.transport
        body = await request.read()
        if b'"echo"' not in body:
            return await super()._answer(request)
        return web.json_response(
            {"headers": dict(request.headers), "size": len(body), "body": json.loads(body)}
        )


@pytest.fixture
async def engine():
    engine = Echo()
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def system(demo, engine, tmp_path: Path):
    """One gateway in front of an engine that replays, with a pool for each way to read."""
    config = tmp_path / "forebay.yaml"
    pools = [
        {"name": name, "models": [name], "capacity": {"tokens": 100_000}, **pool}
        for name, pool in POOLS.items()
    ]
    config.write_text(yaml.safe_dump({"pools": pools, "log": {"level": "debug"}}))
    upstream = f"http://127.0.0.1:{engine.port}"
    options = ("--gateways", "1", "--config", str(config), "--upstream", upstream)
    return await asyncio.to_thread(demo, *options)  # it asks the engine, which runs in this loop


def chat(model: str, **do) -> dict:
    return {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **do}


async def answer(session, system, body: dict) -> tuple[dict[str, str], bytes]:
    async with session.post(f"{system.urls[0]}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        varying = ("date", "x-forebay-queue-wait-ms")
        headers = {k.lower(): v for k, v in response.headers.items() if k.lower() not in varying}
        return headers, await response.read()


def readings(system) -> list[dict]:
    notes = [json.loads(line) for line in system.log("server-1").splitlines() if '"response read"' in line]
    return [
        {k: note.get(k) for k in ("ending", "prompt_tokens", "output_tokens", "cached_tokens")}
        for note in notes
    ]


async def test_an_answer_that_is_read_is_the_same_and_tells_what_it_took(system, session, wait_until):
    expected = []
    for name, (prompt, output, cached) in USAGE.items():
        recorded = (RECORDED / name).read_bytes()
        unread = await answer(session, system, chat("unread", replay=name))
        read = await answer(session, system, chat("read", replay=name))
        assert read == unread
        assert read[1] == recorded
        expected.append(
            {"ending": "complete", "prompt_tokens": prompt, "output_tokens": output, "cached_tokens": cached}
        )
    await wait_until(lambda: len(readings(system)) == len(USAGE), timeout_s=5)
    assert readings(system) == expected
    async with session.get(f"{system.gateway(0)['admin']}/metrics") as page:
        counted = re.findall(
            r'forebay_estimate_error_ratio_count\{.*?kind="output".*?pool="read".*?\} (\S+)|'
            r'forebay_estimate_error_ratio_count\{.*?pool="read".*?kind="output".*?\} (\S+)',
            await page.text(),
        )
    assert [float(a or b) for a, b in counted] == [len(USAGE) - 1]  # a count of events is a guess
    await until_nothing_is_held(system, 5)


async def test_a_chunk_is_not_kept_back_until_the_next_is_there(system, session, engine):
    for model in ("read", "asking"):
        engine.finish.clear()
        body = chat(model, stream=True, replay="chat_stream_usage.sse", midway="wait")
        async with session.post(f"{system.urls[0]}/v1/chat/completions", json=body) as response:
            first = await asyncio.wait_for(response.content.readany(), 5)
            assert first.startswith(b'data: {"id":"chatcmpl-85b1124b17fdf2af"')
            engine.finish.set()
            await response.read()


async def test_usage_that_only_forebay_asked_for_does_not_reach_the_client(system, session, wait_until):
    recorded = (RECORDED / "chat_stream_usage.sse").read_bytes()
    silent = b"\n\n".join(event for event in recorded.split(b"\n\n") if b'"choices":[]' not in event)
    body = chat("asking", stream=True, replay="chat_stream_usage.sse")
    assert (await answer(session, system, body))[1] == silent
    body["stream_options"] = {"include_usage": True}
    assert (await answer(session, system, body))[1] == recorded
    await wait_until(lambda: len(readings(system)) == 2, timeout_s=5)
    assert [note["prompt_tokens"] for note in readings(system)] == [8, 8]
    body = chat("logged", stream=True, replay="chat_stream_usage.sse")
    assert (await answer(session, system, body))[1] == recorded


@pytest.mark.parametrize("size", [10, 200_000])
async def test_the_engine_gets_the_question_with_its_true_length(system, session, size):
    body = chat("asking", stream=True, messages=[{"role": "user", "content": "x" * size}], echo=1)
    got = json.loads((await answer(session, system, body))[1])
    headers = {name.lower(): value for name, value in got["headers"].items()}
    assert got["body"] == {**body, "stream_options": {"include_usage": True}}
    assert int(headers["content-length"]) == got["size"]


async def test_a_client_that_leaves_and_an_engine_that_breaks_off_are_not_complete(
    system, session, engine, wait_until
):
    url = f"{system.urls[0]}/v1/chat/completions"
    body = chat("read", replay="chat_stream_continuous_usage.sse", midway="wait")
    async with session.post(url, json=body) as response:
        await response.content.readany()
        response.close()
    await wait_until(lambda: len(readings(system)) == 1, timeout_s=5)
    async with session.post(url, json=body) as response:
        await response.content.readany()
        engine.transport.close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    await wait_until(lambda: len(readings(system)) == 2, timeout_s=5)
    engine.finish.set()
    for note in readings(system):
        assert (note["ending"], note["prompt_tokens"]) == ("upstream_reset", 8)
    await until_nothing_is_held(system, 5)


async def test_a_large_answer_is_neither_kept_back_nor_refused(system, session, engine, wait_until):
    size = 3_000_000
    body = chat("read", filler=size, midway="wait")
    async with session.post(f"{system.urls[0]}/v1/chat/completions", json=body) as response:
        begin = await asyncio.wait_for(response.content.readexactly(size // 4), 5)
        engine.finish.set()
        whole = begin + await response.read()
    assert len(json.loads(whole)["choices"][0]["message"]["content"]) == size
    await wait_until(lambda: readings(system), timeout_s=5)
    assert readings(system)[0]["output_tokens"] == 8
