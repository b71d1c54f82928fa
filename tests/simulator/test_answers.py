"""Answers have the shape of vLLM's recorded ones, and usage that adds up."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

HELLO = [{"role": "user", "content": "hello there"}]  # 4 + 3 tokens

# What vLLM also sends, always null, empty or without meaning here.
NOT_SENT = {
    *("routed_experts", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"),
    *("max_tool_calls", "previous_response_id", "prompt", "reasoning", "text", "top_logprobs", "user"),
    *("presence_penalty", "frequency_penalty", "input_messages", "output_messages"),
    *("input_tokens_per_turn", "cached_tokens_per_turn", "tool_output_tokens"),
    *("output_tokens_per_turn", "tool_output_tokens_per_turn"),
}


def alike(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return the differences in shape: keys and types, and values where they are words of the protocol."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        missing = [f"{where}.{key} is missing" for key in theirs.keys() - ours.keys() - NOT_SENT]
        extra = [f"{where}.{key} is extra" for key in ours.keys() - theirs.keys()]
        inner = (alike(ours[key], theirs[key], f"{where}.{key}") for key in ours.keys() & theirs.keys())
        return missing + extra + list(chain.from_iterable(inner))
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{where} has {len(ours)} items, not {len(theirs)}"]
        inner = (alike(*pair, f"{where}[]") for pair in zip(ours, theirs, strict=True))
        return list(chain.from_iterable(inner))
    if where.rpartition(".")[2] in {"object", "type", "role", "finish_reason", "stop_reason", "status"}:
        return [] if ours == theirs else [f"{where}: {ours!r}, not {theirs!r}"]
    return [] if type(ours) is type(theirs) else [f"{where}: {ours!r}, not {theirs!r}"]


def events(stream: str) -> list[tuple[str | None, Any]]:
    """Return the events of a stream as (name, data)."""
    found = []
    for block in stream.rstrip("\n").split("\n\n"):
        name = None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            else:
                data = line.removeprefix("data:").strip()
                found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def assert_alike(ours: Any, theirs: Any) -> None:
    assert alike(ours, theirs) == []


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 8}, "chat.json"),
        ("/v1/completions", {"prompt": "one", "max_tokens": 4}, "ok_completions.json"),
        (
            "/v1/chat/completions",
            {"messages": HELLO, "n": 2, "max_tokens": 99, "max_completion_tokens": 3},
            "ok_max_completion_tokens.json",
        ),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 4}, "ok_messages.json"),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 4}, "ok_responses.json"),
        ("/tokenize", {"prompt": "x" * 20}, "ok_tokenize.json"),
    ],
)
async def test_a_whole_answer_has_the_recorded_shape(engine, recorded, path, body, name):
    status, answer = await engine.post(path, body | {"model": "tiny", "ignore_eos": True})
    assert status == 200
    assert_alike(answer, json.loads(recorded(name)))


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 5}, "chat_stream_nousage.sse"),
        (
            "/v1/chat/completions",
            {"messages": HELLO, "max_tokens": 5, "stream_options": {"include_usage": True}},
            "chat_stream_usage.sse",
        ),
        (
            "/v1/chat/completions",
            {
                "messages": HELLO,
                "max_tokens": 5,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
            "chat_stream_continuous_usage.sse",
        ),
        (
            "/v1/completions",
            {"prompt": "one", "max_tokens": 3, "stream_options": {"include_usage": True}},
            "completion_stream_usage.sse",
        ),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 3}, "messages_stream.sse"),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 2}, "responses_stream.sse"),
    ],
)
async def test_a_stream_has_the_recorded_events(engine, recorded, path, body, name):
    stream = await engine.stream(path, body | {"model": "tiny", "stream": True, "ignore_eos": True})
    ours, theirs = events(stream), events(recorded(name))
    assert [event for event, _ in ours] == [event for event, _ in theirs]
    assert_alike([data for _, data in ours], [data for _, data in theirs])


async def test_usage_is_what_was_computed_and_said(engine):
    body = {"messages": HELLO, "max_tokens": 6, "n": 3, "ignore_eos": True}
    _, answer = await engine.post("/v1/chat/completions", body)
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 18,
        "total_tokens": 25,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    assert [len(choice["message"]["content"].split()) for choice in answer["choices"]] == [6, 6, 6]
    (arrival,) = await engine.get("/sim/arrivals")
    assert (arrival["prompt_tokens"], arrival["output_tokens"]) == (7, 18)


async def test_a_stream_says_the_same_as_a_whole_answer_would(start_engine):
    body = {"messages": HELLO, "max_tokens": 40, "model": "tiny"}
    texts = []
    for streams in (False, True):
        engine = await start_engine(seed=3)
        if streams:
            stream = await engine.stream("/v1/chat/completions", body | {"stream": True})
            chunks = [data for _, data in events(stream) if data != "[DONE]"]
            texts.append("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks))
        else:
            _, answer = await engine.post("/v1/chat/completions", body)
            texts.append(answer["choices"][0]["message"]["content"])
    assert texts[0] == texts[1] != ""


async def test_the_answers_of_one_stream_are_told_apart(engine):
    body = {"messages": HELLO, "max_tokens": 4, "n": 2, "stream": True, "ignore_eos": True}
    stream = await engine.stream("/v1/chat/completions", body)
    chunks = [data["choices"][0] for _, data in events(stream) if data != "[DONE]"]
    ends = [chunk["index"] for chunk in chunks if chunk["finish_reason"]]
    assert sorted(ends) == [0, 1]
    for index in (0, 1):
        said = "".join(chunk["delta"]["content"] for chunk in chunks if chunk["index"] == index)
        assert len(said.split()) == 4


@pytest.mark.parametrize(
    ("prompt", "prompts", "tokens"),
    [
        ("12345678", 1, 2),
        ([1, 2, 3], 1, 3),
        (["1234", "12345678"], 2, 3),
        ([[1], [2, 3]], 2, 3),
    ],
)
async def test_a_completion_takes_prompts_in_every_form(engine, prompt, prompts, tokens):
    _, answer = await engine.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "ignore_eos": True})
    assert len(answer["choices"]) == prompts
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 2 * prompts


async def test_a_header_sets_the_exact_number_of_tokens(engine):
    headers = {"x-sim-prompt-tokens": "1234", "x-sim-output-tokens": "17"}
    _, answer = await engine.post("/v1/chat/completions", {"messages": HELLO}, headers=headers)
    assert answer["usage"]["prompt_tokens"] == 1234
    assert answer["usage"]["completion_tokens"] == 17
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_the_output_limit_holds_whatever_the_header_says(engine):
    _, answer = await engine.post(
        "/v1/chat/completions", {"messages": HELLO, "max_tokens": 5}, headers={"x-sim-output-tokens": "17"}
    )
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_an_answer_that_ends_by_itself_says_so_in_every_dialect(engine):
    headers = {"x-sim-output-tokens": "2"}
    _, message = await engine.post("/v1/messages", {"messages": HELLO, "max_tokens": 9}, headers=headers)
    _, response = await engine.post("/v1/responses", {"input": HELLO}, headers=headers)
    _, generated = await engine.post(
        "/generate", {"inputs": "hi", "parameters": {"details": True}}, headers=headers
    )
    assert message["stop_reason"] == "end_turn"
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert generated["details"]["finish_reason"] == "eos_token"


async def test_embeddings_are_the_same_for_the_same_text(engine):
    body = {"input": ["a cat", "a dog", "a cat"]}
    _, answer = await engine.post("/v1/embeddings", body)
    first, second, third = (entry["embedding"] for entry in answer["data"])
    assert first == third != second
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 6


async def test_scores_grow_with_what_texts_have_in_common(engine):
    _, answer = await engine.post("/v1/score", {"text_1": "a cat", "text_2": ["a cat", "a dog", "tea"]})
    assert [entry["score"] for entry in answer["data"]] == [1.0, pytest.approx(1 / 3), 0.0]
    _, single = await engine.post("/v1/score", {"text_1": "a", "text_2": "b"})
    assert len(single["data"]) == 1


async def test_rerank_puts_the_likest_document_first(engine):
    body = {"query": "a cat", "documents": ["tea", "a cat sat", "a dog"], "top_n": 2}
    _, answer = await engine.post("/v1/rerank", body)
    assert [result["index"] for result in answer["results"]] == [1, 2]
    assert answer["results"][0]["document"] == {"text": "a cat sat"}


async def test_tgi_tells_the_whole_text_with_its_last_token(engine):
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 3}, "ignore_eos": True}
    stream = await engine.stream("/generate_stream", body)
    tokens = [data for _, data in events(stream)]
    assert [token["index"] for token in tokens] == [1, 2, 3]
    assert [token["generated_text"] is None for token in tokens] == [True, True, False]
    assert tokens[-1]["generated_text"] == "".join(token["token"]["text"] for token in tokens)
    assert tokens[-1]["details"]["generated_tokens"] == 3
    _, whole = await engine.post("/generate", body)
    assert len(whole["generated_text"].split()) == 3


async def test_any_model_is_served_where_a_star_is_configured(start_engine):
    engine = await start_engine(models=("first", "*"))
    _, answer = await engine.post("/v1/chat/completions", {"model": "whatever", "messages": HELLO})
    assert answer["model"] == "whatever"
    _, unnamed = await engine.post("/v1/chat/completions", {"messages": HELLO})
    assert unnamed["model"] == "first"


async def test_the_models_list_has_the_recorded_shape(start_engine, recorded):
    engine = await start_engine(models=("tiny", "alias", "*"), max_model_len=4096)
    models = await engine.get("/v1/models")
    theirs = json.loads(recorded("models.json"))
    theirs["data"][0]["permission"] = []
    assert_alike(models["data"][0], theirs["data"][0])
    assert [model["id"] for model in models["data"]] == ["tiny", "alias"]
    assert models["data"][0]["max_model_len"] == 4096


async def test_an_engine_for_any_model_still_lists_one(start_engine):
    engine = await start_engine(models=("*",))
    models = await engine.get("/v1/models")
    assert [model["id"] for model in models["data"]] == ["simulated"]


async def test_the_engine_says_who_it_is(engine, recorded):
    assert await engine.get("/version") == json.loads(recorded("version.json"))
    assert await engine.get("/load") == json.loads(recorded("load.json"))
    for path in ("/health", "/ping"):
        async with engine.http.get(engine.url + path) as response:
            assert (response.status, await response.text()) == (200, "")


async def test_conversations_can_be_counted_without_being_answered(engine):
    _, counted = await engine.post("/v1/messages/count_tokens", {"messages": HELLO})
    _, tokens = await engine.post("/tokenize", {"messages": HELLO})
    assert counted == {"input_tokens": 7}
    assert tokens["count"] == 7
    assert await engine.get("/sim/arrivals") == []
