"""The client sends on time whatever the answers do, and tells apart how each one ended."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from extproc.bench import BenchOptions, ClassLoad, run_bench
from extproc.bench.workload import arrivals

ONE_CLASS = (ClassLoad("urgent", 1, 20, 3),)


def options(url, **more):
    return BenchOptions(**{"urls": (url,), "classes": ONE_CLASS, "rate_per_s": 40, "duration_s": 0.3} | more)


async def stream(request, *events):
    response = web.StreamResponse(headers={"x-forebay-queue-wait-ms": "250"})
    await response.prepare(request)
    for event in events:
        await response.write(b"data: " + event + b"\n\n")
    return response


async def outcomes(serve, handler, **more):
    result = await run_bench(options(await serve(handler), **more))
    assert result.samples
    return {sample.outcome for sample in result.samples}


async def test_every_request_of_the_plan_is_sent_with_its_class_and_seen_to_its_end(serve):
    seen = []

    async def answer(request):
        seen.append((request.headers["x-forebay-priority"], request.headers["x-forebay-tenant"]))
        body = await request.json()
        assert body["max_tokens"] == 3
        return await stream(request, b'{"choices": []}', b"[DONE]")

    wanted = options(await serve(answer))
    result = await run_bench(wanted)
    assert len(result.samples) == len(seen) == len(list(arrivals(wanted)))
    assert set(seen) == {("urgent", "tenant-0")}
    for sample in result.samples:
        assert sample.outcome == "ok"
        assert sample.queue_wait_s == 0.25
        assert 0 < sample.ttft_s <= sample.e2e_s
        assert sample.late_s >= 0


async def test_sending_does_not_wait_for_answers(serve):
    """All are in flight at once, for the server answers only when the last has come."""
    wanted = options("")
    everyone = asyncio.Barrier(len(list(arrivals(wanted))))

    async def answer(request):
        await everyone.wait()
        return await stream(request, b"[DONE]")

    assert await outcomes(serve, answer) == {"ok"}


async def test_a_refusal_is_counted_by_status_and_reason(serve):
    async def refuse(_request):
        return web.json_response({"error": {}}, status=429, headers={"x-forebay-reason": "queue_full"})

    assert await outcomes(serve, refuse) == {"429 queue_full"}


async def test_an_error_inside_a_stream_is_no_answer(serve):
    async def answer(request):
        return await stream(request, b'{"error":{"message":"full"}}', b"[DONE]")

    assert await outcomes(serve, answer) == {"200 with an error"}


async def test_a_text_that_speaks_of_errors_is_an_answer(serve):
    async def answer(request):
        return await stream(request, rb'{"delta": "{\"error\":1}"}', b"[DONE]")

    assert await outcomes(serve, answer) == {"ok"}


async def test_a_stream_without_its_end_is_cut_off(serve):
    async def answer(request):
        return await stream(request, b'{"choices": []}')

    assert await outcomes(serve, answer) == {"cut off"}


async def test_a_connection_that_breaks_is_cut_off(serve):
    async def answer(request):
        response = await stream(request, b'{"choices": []}')
        request.transport.abort()
        return response

    assert await outcomes(serve, answer) == {"cut off"}


async def test_a_request_without_answer_times_out(serve):
    async def answer(_request):
        await asyncio.sleep(30)

    assert await outcomes(serve, answer, timeout_s=0.2) == {"timeout"}


async def test_a_gateway_that_is_away_is_unreachable(serve, unused_tcp_port):
    result = await run_bench(options(f"http://127.0.0.1:{unused_tcp_port}"))
    assert {sample.outcome for sample in result.samples} == {"unreachable"}
    assert not result.has_answers


async def test_an_answer_that_is_no_stream_has_no_first_token(serve):
    async def answer(request):
        assert "stream" not in await request.json()
        return web.json_response({"choices": []})

    result = await run_bench(options(await serve(answer), is_streaming=False))
    assert {(sample.outcome, sample.ttft_s) for sample in result.samples} == {("ok", None)}


async def test_the_warm_up_is_sent_but_not_reported(serve):
    requests = 0

    async def answer(request):
        nonlocal requests
        requests += 1
        return await stream(request, b"[DONE]")

    result = await run_bench(options(await serve(answer), warmup_s=0.3))
    assert 0 < len(result.samples) < requests
    assert all(sample.sent_s >= 0.3 for sample in result.samples)


async def test_a_plan_that_contradicts_itself_is_refused_before_anything_is_sent():
    from extproc.domain.errors import ConfigError

    with pytest.raises(ConfigError):
        await run_bench(BenchOptions(body_bytes=1))
