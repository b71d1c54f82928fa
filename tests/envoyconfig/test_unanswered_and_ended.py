"""Requests that Forebay leaves unanswered, limits, and how the end of a response is told."""

from __future__ import annotations

import asyncio
import json

import pytest


@pytest.mark.parametrize("then", ["bare", "say_nothing", "fail", "hand_over"])
async def test_what_forebay_did_not_answer_is_not_admitted(start_gateway, then):
    """Envoy takes a clean end of the stream for consent; `guard` does not."""
    gateway = await start_gateway(retries=1)
    answer = await gateway.post({"then": then})
    assert (answer.status, answer.told) == (503, {"x-forebay-reason": "store_unavailable"})
    assert answer.headers["retry-after"] == "2"
    assert answer.json["type"] == "error"
    assert answer.json["error"]["code"] == "store_unavailable"
    assert gateway.engines[0].requests == []


async def test_a_body_of_unknown_length_is_not_taken_for_none(start_gateway):
    async def chunks():
        yield b'{"then": '
        yield b'"say_nothing"}'

    gateway = await start_gateway(retries=1)
    answer = await gateway.request("POST", "/v1/chat/completions", data=chunks())
    assert answer.status == 503
    assert gateway.engines[0].requests == []


async def test_a_body_over_the_limit_is_refused_in_the_clients_language(start_gateway):
    gateway = await start_gateway(max_body_bytes=100_000)
    assert (await gateway.post(size=90_000)).status == 200
    answer = await gateway.post(size=300_000)
    assert (answer.status, answer.told) == (413, {"x-forebay-reason": "body_too_large"})
    assert answer.json["error"]["code"] == "body_too_large"
    assert "100000 bytes" in answer.json["error"]["message"]


async def test_a_hold_ends_after_max_hold(start_gateway):
    gateway = await start_gateway(max_hold_s=0.2)
    answer = await gateway.post({"until": "/never"})
    assert (answer.status, answer.told) == (503, {"x-forebay-reason": "store_unavailable"})
    assert gateway.engines[0].requests == []


async def test_the_access_log_brings_back_what_forebay_said(start_gateway, wait_until):
    gateway = await start_gateway()
    await gateway.post()
    await gateway.post({"then": "pass"})
    await wait_until(lambda: len(gateway.seen("access_log")) == 2)
    tickets = [note["ticket"] for note in gateway.seen("request")]
    admitted, passed = gateway.seen("access_log", status=200)
    assert admitted["metadata"]["class"] == "interactive"
    assert [admitted["metadata"]["ticket"], passed["metadata"]["ticket"]] == tickets


async def test_the_stream_ends_with_the_response(start_gateway, wait_until):
    gateway = await start_gateway()
    streaming = asyncio.create_task(gateway.post({"stream": True}))
    await wait_until(lambda: gateway.engines[0].requests)
    assert gateway.seen("stream_end") == []
    gateway.engines[0].finish.set()
    await streaming
    await wait_until(lambda: gateway.seen("stream_end"))


async def test_a_file_access_log_has_a_json_line_a_request(start_gateway, wait_until, tmp_path):
    log = tmp_path / "access.log"
    gateway = await start_gateway(access_log=str(log))
    await gateway.post(path="/v1/chat/completions?key=secret")
    async with gateway.session.post(f"{gateway.admin_url}/reopen_logs"):  # what is buffered is written
        await wait_until(log.read_text)
    (line,) = log.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["status"], entry["class"], entry["path"]) == (200, "interactive", "/v1/chat/completions")
    assert "secret" not in line
