"""Errors are worded as vLLM words them."""

from __future__ import annotations

import json

import pytest

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (b'{"model":"tiny",', 400, "err_400_badjson.json"),
        (b"model=tiny", 400, "err_415_ctype.json"),
        ({"model": "tiny"}, 400, "err_400_missing.json"),
        ({"messages": [], "max_tokens": "many"}, 400, "err_400_type.json"),
        ({"messages": [], "priority": "high"}, 400, "err_400_prio_str.json"),
        ({"messages": [], "max_tokens": 100_000}, 400, "err_400_maxtokens_over.json"),
        ({"messages": [{"role": "user", "content": "x" * 20_000}]}, 400, "err_400_context_over.json"),
        ({"messages": [], "model": "nope"}, 404, "err_404_model.json"),
    ],
)
async def test_a_bad_request_gets_the_recorded_error(engine, recorded, body, status, name):
    assert await engine.post(CHAT, body) == (status, json.loads(recorded(name)))
    (arrival,) = await engine.get("/sim/arrivals")
    assert arrival["ended"] == "error"
    assert (await engine.state())["peak"]["running"] == 0


async def test_a_wrong_method_is_answered_as_recorded(engine, recorded):
    async with engine.http.get(engine.url + CHAT) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert await response.json() == json.loads(recorded("err_405.json"))


async def test_an_unknown_path_is_not_found(engine):
    assert await engine.post("/nope", {}) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        ({"messages": [], "max_tokens": 0}, {}, "max_tokens"),
        ({"messages": [], "max_tokens": 4000}, {"x-sim-prompt-tokens": "97"}, "input_tokens"),
        ({"messages": []}, {"x-sim-prompt-tokens": "4096"}, "input_tokens"),
        ({"messages": []}, {"x-sim-prompt-tokens": "many"}, "x-sim-prompt-tokens"),
        ({"messages": []}, {"x-sim-output-tokens": "0"}, "x-sim-output-tokens"),
        ({"messages": []}, {"x-sim-fault": "explode"}, "x-sim-fault"),
        ({"messages": [], "stream_options": {"include_usage": True}}, {}, "body"),
        ({"messages": [], "n": 0}, {}, "body.n"),
    ],
)
async def test_an_error_names_what_is_wrong(engine, body, headers, param):
    status, answer = await engine.post(CHAT, body, headers=headers)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, 400, param)


async def test_prompt_and_output_may_fill_the_context_to_the_last_token(engine):
    status, answer = await engine.post(
        CHAT,
        {"messages": [], "max_tokens": 4000, "ignore_eos": True},
        headers={"x-sim-prompt-tokens": "96"},
    )
    assert (status, answer["usage"]["total_tokens"]) == (200, 4096)


async def test_several_errors_are_told_at_once(engine):
    _, answer = await engine.post(CHAT, {"max_tokens": "many"})
    assert answer["error"]["message"].startswith("2 validation errors:\n  {'type': 'missing'")


async def test_json_that_is_not_strict_is_read_all_the_same(engine):
    status, _ = await engine.post(CHAT, b'{"messages": [], "max_tokens": 1, "temperature": NaN}')
    assert status == 200


async def test_a_cache_smaller_than_the_context_is_the_context(start_engine):
    engine = await start_engine(kv_tokens=160)
    assert (await engine.get("/v1/models"))["data"][0]["max_model_len"] == 144
    status, _ = await engine.post(CHAT, {"messages": []}, headers={"x-sim-prompt-tokens": "144"})
    assert status == 400


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/messages", {"messages": []}, {"type": "error", "error": {"type": "invalid_request_error"}}),
        ("/generate", {}, {"error_type": "validation"}),
    ],
)
async def test_each_dialect_has_its_own_error(engine, path, body, expected):
    status, answer = await engine.post(path, body)
    assert status == 400
    message = answer["error"].pop("message") if path == "/v1/messages" else answer.pop("error")
    assert "Field required" in message
    assert answer == expected


@pytest.fixture
async def full(start_engine, wait_until):
    """An engine with one request in it and room for no more."""
    engine = await start_engine(max_num_queued_reqs=1, speed=1.0)
    body = {"messages": [], "stream": True, "ignore_eos": True}
    async with engine.http.post(engine.url + CHAT, json=body) as response:
        await response.content.readany()
        yield engine


async def test_a_full_queue_refuses_with_503(full, recorded):
    status, answer = await full.post(CHAT, {"messages": []})
    assert (status, answer) == (503, json.loads(recorded("err_503_queue_full.json")))
    assert 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 1.0' in (
        await full.metrics()
    )


async def test_a_full_queue_refuses_a_stream_inside_a_200(full, recorded):
    stream = await full.stream(CHAT, {"messages": [], "stream": True})
    ours, theirs = (
        text.removeprefix("data: ").split("\n\ndata: ")
        for text in (stream.rstrip(), recorded("err_503_queue_full.sse").rstrip())
    )
    assert json.loads(ours[0]) == json.loads(theirs[0])
    assert ours[1:] == theirs[1:] == ["[DONE]"]
    assert (await full.get("/sim/arrivals"))[-1]["ended"] == "error"


async def test_other_dialects_are_refused_with_503_even_in_a_stream(full):
    status, answer = await full.post("/v1/messages", {"messages": [], "max_tokens": 5, "stream": True})
    assert (status, answer["error"]["type"]) == (503, "overloaded_error")
    status, answer = await full.post("/generate_stream", {"inputs": "hi"})
    assert (status, answer["error_type"]) == (503, "overloaded")


async def test_a_full_backlog_of_prompts_has_its_own_words(start_engine, recorded):
    engine = await start_engine(max_num_queued_tokens=100, speed=1.0)
    body = {"messages": [], "stream": True}
    headers = {"x-sim-prompt-tokens": "20000"}  # takes a second
    async with engine.http.post(engine.url + CHAT, json=body, headers=headers):
        status, answer = await engine.post(CHAT, {"messages": []})
    assert (status, answer) == (503, json.loads(recorded("err_503_queued_tokens.json")))
