"""Responses that are read as they pass: Envoy's messages are scripted, time is virtual."""

from __future__ import annotations

import asyncio
import json

import pytest
from admission.world import World
from processor.stage import (
    Actor,
    Reply,
    Stage,
    body,
    chat,
    headers,
    response_body,
    response_headers,
    response_trailers,
    whole,
)

from extproc.domain.outcome import Ending
from extproc.domain.response import UsageSource
from extproc.domain.tokens import Usage

pytestmark = pytest.mark.looptime

SSE, JSON = "text/event-stream; charset=utf-8", "application/json"
CONTENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def world():
    async with World().running() as world:
        yield world


@pytest.fixture
async def stage(world):
    return Stage(world, usage=UsageSource.STREAM)


async def answered(
    stage: Stage, *chunks: bytes, request: bytes = b"", status: int = 200, kind: str = SSE, **named: str
) -> tuple[Actor, list[Reply]]:
    """Lead an exchange up to the last of some chunks, none of which ends the stream."""
    envoy = stage.enter(whole(request or chat(stream=True), x_forebay_ticket="t-1"))
    envoy.says(response_headers(status, content_type=kind, **named))
    for chunk in chunks:
        envoy.says(response_body(chunk))
    return envoy, [await envoy.hears() for _ in range(2 + len(chunks))]


async def ends(envoy: Actor) -> None:
    envoy.says(response_body(b"", is_last=True))
    await envoy.hears()
    await envoy.resets()


async def test_envoy_is_asked_for_the_body_and_for_nothing_else_to_change(stage):
    envoy, (_, reply) = await answered(stage)
    mode = reply.message.mode_override
    told = (
        mode.request_header_mode.name,
        mode.request_body_mode.name,
        mode.response_header_mode.name,
        mode.response_body_mode.name,
        mode.response_trailer_mode.name,
    )
    assert told == ("DEFAULT", "BUFFERED", "DEFAULT", "STREAMED", "SEND")
    assert reply.headers["x-forebay-class"] == "interactive"
    await ends(envoy)


async def test_a_stream_read_to_its_end_tells_what_it_took(stage):
    envoy, _ = await answered(stage)
    await asyncio.sleep(1.5)
    for chunk in (CONTENT, CONTENT + USAGE[:9], USAGE[9:] + DONE):
        envoy.says(response_body(chunk))
        reply = await envoy.hears()
        assert (reply.kind, reply.new_body) == ("response_body", None)
    await asyncio.sleep(2)
    assert stage.ended == []
    await ends(envoy)
    [ended] = stage.ended
    assert (ended.pool, ended.priority_class, ended.ticket) == ("llama", "interactive", "t-1")
    assert (ended.ending, ended.usage, ended.is_streaming) == (Ending.COMPLETE, Usage(7, 2), True)
    assert ended.body_bytes == len(CONTENT + CONTENT + USAGE + DONE)
    assert (ended.first_byte_s, ended.duration_s) == (pytest.approx(1.5), pytest.approx(3.5))
    assert ended.foresight.answers == 1


async def test_the_wait_in_the_queue_is_not_part_of_the_duration(stage, world):
    other = world.ask("other", 60)
    await asyncio.sleep(0.1)
    envoy = stage.enter(whole(chat(stream=True)))
    await asyncio.sleep(3)
    await world.end(other)
    await envoy.hears()
    envoy.says(response_headers(content_type=SSE))
    envoy.says(response_body(USAGE, is_last=True))
    await envoy.hears()
    await envoy.hears()
    await envoy.resets()
    assert stage.ended[0].duration_s == pytest.approx(0, abs=0.01)


async def test_an_answer_in_one_piece_is_read_whatever_its_chunks(stage):
    document = b'{"usage":{"prompt_tokens":7,"completion_tokens":2}}'
    envoy, _ = await answered(stage, document[:20], document[20:], request=chat(), kind=JSON)
    await ends(envoy)
    [ended] = stage.ended
    assert (ended.ending, ended.usage, ended.is_streaming) == (Ending.COMPLETE, Usage(7, 2), False)


async def test_a_stream_that_reports_nothing_counts_by_its_events(stage):
    envoy, _ = await answered(stage, CONTENT, CONTENT, CONTENT, DONE)
    await ends(envoy)
    assert stage.ended[0].usage == Usage(output_tokens=3, is_guess=True)


async def test_a_stream_without_content_tells_no_usage(stage):
    envoy, _ = await answered(stage, b'data: {"error": {}}\n\n', DONE)
    await ends(envoy)
    assert stage.ended[0].usage is None


@pytest.mark.parametrize("is_peaceful", [True, False])
async def test_a_response_that_is_cut_off_is_not_complete(stage, is_peaceful):
    envoy, _ = await answered(stage, CONTENT, USAGE)
    await (envoy.half_closes() if is_peaceful else envoy.resets())
    [ended] = stage.ended
    assert (ended.ending, ended.usage) == (Ending.UPSTREAM_RESET, Usage(7, 2))


async def test_half_a_document_tells_no_usage(stage):
    envoy, _ = await answered(stage, b'{"usage":{"prompt_tokens":7}}', request=chat(), kind=JSON)
    await envoy.resets()
    [ended] = stage.ended
    assert (ended.ending, ended.usage) == (Ending.UPSTREAM_RESET, None)


async def test_a_chunk_that_was_answered_in_the_streams_last_moment_is_read(stage):
    """Envoy resets the stream once it has the answer, before the handler is back from sending it."""
    envoy, _ = await answered(stage, CONTENT)
    envoy.delay_s = 1
    envoy.says(response_body(USAGE, is_last=True))
    await asyncio.sleep(0.5)
    await envoy.resets()
    [ended] = stage.ended
    assert (ended.ending, ended.usage) == (Ending.COMPLETE, Usage(7, 2))


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_engines_error_is_told_unread(stage, status):
    envoy, (_, reply) = await answered(stage, status=status, kind=JSON)
    assert reply.message.mode_override is None
    await envoy.resets()
    [ended] = stage.ended
    assert (ended.ending, ended.usage, ended.body_bytes) == (Ending.UPSTREAM_ERROR, None, 0)


UNREAD = {
    "client's error": {"status": 400, "kind": JSON},
    "compressed": {"content_encoding": "gzip"},
    "audio": {"kind": "audio/mpeg"},
    "no kind": {"kind": ""},
}


@pytest.mark.parametrize("case", UNREAD)
async def test_what_tells_no_usage_is_not_read_and_teaches_nothing(stage, case):
    envoy, (_, reply) = await answered(stage, **UNREAD[case])
    assert reply.message.mode_override is None
    await envoy.resets()
    assert stage.ended == []


async def test_a_response_without_a_body_is_not_read(stage):
    envoy = stage.enter(whole(chat()), response_headers(is_last=True, content_type=JSON))
    await envoy.hears()
    assert (await envoy.hears()).message.mode_override is None
    await envoy.resets()
    assert stage.ended == []


async def test_an_envoy_that_tells_nothing_of_responses_teaches_nothing(stage):
    envoy = stage.enter(whole(chat()))
    await envoy.hears()
    await envoy.resets()
    assert stage.ended == []


async def test_a_body_that_nobody_asked_for_is_answered(stage):
    envoy, _ = await answered(stage, b"{}", status=400, kind=JSON)
    await envoy.half_closes()
    assert stage.ended == []


async def test_the_portable_chain_reads_likewise_and_trailers_are_answered(stage):
    envoy = stage.enter(headers(), body(chat()), response_headers(content_type=SSE), response_body(USAGE))
    envoy.says(response_trailers())
    kinds = [(await envoy.hears()).kind for _ in range(5)]
    assert kinds == [
        "request_headers",
        "request_body",
        "response_headers",
        "response_body",
        "response_trailers",
    ]
    await envoy.half_closes()
    assert stage.ended[0].usage == Usage(7, 2)


@pytest.mark.parametrize("usage", [UsageSource.ACCESS_LOG, UsageSource.OFF])
async def test_a_pool_that_does_not_ask_for_it_reads_nothing(world, usage):
    stage = Stage(world, usage=usage)
    envoy, (_, reply) = await answered(stage)
    assert reply.message.mode_override is None
    await envoy.half_closes()
    assert stage.ended == []


async def test_a_sample_is_read(world):
    stage = Stage(world, usage=UsageSource.STREAM, usage_sample=0.5)
    asked = 0
    for _ in range(60):
        envoy, (_, reply, _) = await answered(stage, CONTENT)
        asked += reply.message.mode_override is not None
        await envoy.resets()
    assert 10 < asked < 50
    assert len(stage.ended) == asked


# --- usage that the client did not ask for ----------------------------------------------------------------


@pytest.fixture
async def asking(world):
    return Stage(world, usage=UsageSource.STREAM, asks_for_usage=True)


async def test_the_engine_is_asked_and_the_client_sees_nothing_of_it(asking):
    envoy, replies = await answered(asking, CONTENT, CONTENT + USAGE[:9], USAGE[9:], DONE)
    changed = replies[0].new_body
    assert json.loads(changed) == json.loads(chat(stream=True, stream_options={"include_usage": True}))
    assert replies[0].headers == {"content-length": str(len(changed))}
    assert replies[0].metadata["ticket"] == "t-1"
    assert [reply.new_body for reply in replies[2:]] == [None, CONTENT, b"", None]
    await ends(envoy)
    assert asking.ended[0].usage == Usage(7, 2)


async def test_a_client_that_asked_gets_what_it_asked_for(asking):
    request = chat(stream=True, stream_options={"include_usage": True})
    envoy, replies = await answered(asking, CONTENT, USAGE, DONE, request=request)
    assert [reply.new_body for reply in replies] == [None] * 5
    await ends(envoy)
    assert asking.ended[0].usage == Usage(7, 2)


async def test_with_the_access_log_the_engine_is_asked_and_nothing_is_read(world):
    stage = Stage(world, usage=UsageSource.ACCESS_LOG, asks_for_usage=True)
    envoy, (asked, headers_reply, *_) = await answered(stage)
    assert asked.new_body is not None
    assert headers_reply.message.mode_override is None
    await envoy.resets()


@pytest.mark.parametrize(
    "pool", [{"usage": UsageSource.OFF}, {"usage": UsageSource.STREAM, "usage_sample": 0}]
)
async def test_nobody_is_asked_where_nobody_would_read(world, pool):
    stage = Stage(world, asks_for_usage=True, **pool)
    envoy, (reply, _) = await answered(stage)
    assert reply.new_body is None
    await envoy.resets()
