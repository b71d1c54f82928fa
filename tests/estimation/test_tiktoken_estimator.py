"""Bodies in, demands out."""

from __future__ import annotations

import asyncio
import gzip
import json
import pydoc_data.topics
import threading

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.dialects import recognise
from extproc.domain.errors import BadRequest, BodyTooLarge
from extproc.domain.tokens import Demand
from extproc.estimation import EstimationSettings, TiktokenEstimator

CHAT = recognise("/v1/chat/completions")
ENGLISH = "\n\n".join(pydoc_data.topics.topics.values())
TURN, REPLY = 4, 3
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Look it up.", "parameters": {}}}]


def chat(*contents: object, **fields: object) -> bytes:
    messages = [{"role": "user", "content": content} for content in contents]
    return orjson.dumps({"model": "llama", "messages": messages, **fields})


@pytest.mark.parametrize(
    ("path", "fields", "text", "extra", "demanded"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why is the sky blue?"}]},
         ["Why is the sky blue?"], TURN + REPLY, (None, 1)),
        ("/v1/chat/completions",
         {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
          "max_tokens": 1, "max_completion_tokens": 90, "n": 3},
         ["Be brief.", "Why?"], 2 * TURN + REPLY, (90, 3)),
        ("/v1/chat/completions", {"messages": [], "tools": TOOLS}, [json.dumps(TOOLS)], 0, (None, 1)),
        ("/v1/completions", {"prompt": ["Once upon a time", "In the end"], "max_tokens": 16, "n": 2},
         ["Once upon a time", "In the end"], 0, (16, 4, 2)),
        ("/v1/completions", {"prompt": [[1, 2, 3], [4, 5]]}, [], 5, (None, 2, 2)),
        ("/v1/responses", {"instructions": "Be brief.", "input": "Why?", "max_output_tokens": 5},
         ["Be brief.", "Why?"], TURN + REPLY, (5, 1)),
        ("/v1/embeddings", {"input": ["one text", "another text"]}, ["one text", "another text"], 0, (None, 0, 2)),
        ("/v1/messages", {"system": "Be brief.", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 7},
         ["Be brief.", "Why?"], 2 * TURN + REPLY, (7, 1)),
        ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 9, "best_of": 2}},
         ["Once upon a time"], 0, (9, 2)),
        ("/generate_stream", {"inputs": "Once"}, ["Once"], 0, (None, 1)),
        ("/v1/score", {"text_1": "a question", "text_2": ["an answer", "no"]},
         ["a question", "a question", "an answer", "no"], 0, (None, 0, 2)),
        ("/v1/rerank", {"query": "a question", "documents": ["an answer"]}, ["a question", "an answer"], 0, (None, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("model", "encoding"), [("meta-llama/Llama-3.3-70B", "cl100k_base"), ("gpt-4o", "o200k_base")]
)
async def test_bodies_ask_for_what_tiktoken_counts(  # noqa: PLR0917 - a table and its columns
    estimator, oracle, path, fields, text, extra, demanded, model, encoding
):
    appraisal = await estimator.appraise(recognise(path), orjson.dumps({"model": model, **fields}))
    counted = sum(oracle(each, encoding) for each in text) + extra
    assert appraisal.demand == Demand(counted, *demanded, is_exact=True)
    assert appraisal.body.model == model


async def test_compressed_bodies_ask_for_the_same(estimator):
    body = chat("Why is the sky blue?")
    assert await estimator.appraise(CHAT, gzip.compress(body), "gzip") == await estimator.appraise(CHAT, body)


async def test_truncation_bounds_the_prompt(estimator):
    body = orjson.dumps({"input": [ENGLISH[:5_000], "short"], "truncate_prompt_tokens": 100})
    appraisal = await estimator.appraise(recognise("/v1/embeddings"), body)
    assert appraisal.demand.prompt_tokens == 200


async def test_media_go_by_rule_and_are_not_exact(estimator, oracle):
    appraisal = await estimator.appraise(CHAT, chat([{"type": "text", "text": "What is it?"}, IMAGE]))
    assert appraisal.demand == Demand(oracle("What is it?") + 765 + TURN + REPLY, is_exact=False)


async def test_an_image_of_megabytes_costs_what_a_small_one_costs(estimator):
    url = "data:image/png;base64," + "QUJD" * 2_000_000
    appraisal = await estimator.appraise(CHAT, chat([{"type": "image_url", "image_url": {"url": url}}]))
    assert appraisal.demand.prompt_tokens == 765 + TURN + REPLY


async def test_an_earlier_response_is_known_to_be_missing(estimator):
    body = orjson.dumps({"input": "And?", "previous_response_id": "resp_1"})
    assert not (await estimator.appraise(recognise("/v1/responses"), body)).demand.is_exact


async def test_a_long_prompt_is_near_and_says_so(estimator, oracle):
    demand = (await estimator.appraise(CHAT, chat(ENGLISH))).demand
    assert not demand.is_exact
    assert demand.prompt_tokens == pytest.approx(oracle(ENGLISH), rel=0.03)


async def test_a_history_sent_again_is_remembered(estimator):
    history = [ENGLISH[at : at + 1_000] for at in range(0, 10_000, 1_000)]
    await estimator.appraise(CHAT, chat(*history))
    hits = estimator.cache.hits
    await estimator.appraise(CHAT, chat(*history, "And now?"))
    assert estimator.cache.hits == hits + len(history)


@pytest.mark.parametrize(
    ("body", "encoding", "fault"),
    [
        (b"", "", BadRequest),
        (b"{", "", BadRequest),
        (b'{"messages": 5}', "", BadRequest),
        (b'{"messages": [{"content": "\xff"}]}', "", BadRequest),
        (b"[" * 100_000, "", BadRequest),
        (b"{}", "br", BadRequest),
        (b" " * (20 << 20), "", BodyTooLarge),
        (gzip.compress(b" " * (20 << 20)), "gzip", BodyTooLarge),
    ],
    ids=["empty", "torn", "wrong type", "not utf-8", "deep", "brotli", "large", "bomb"],
)
async def test_bad_bodies_are_refused_and_leave_the_lanes_free(estimator, body, encoding, fault):
    with pytest.raises(fault) as raised:
        await estimator.appraise(CHAT, body, encoding)
    assert type(raised.value) is fault
    assert not estimator._small.is_full
    assert (await estimator.appraise(CHAT, chat("hi"))).demand.is_exact


async def test_a_full_lane_weighs_by_size_what_comes_next():
    gate = threading.Event()
    estimator = TiktokenEstimator(EstimationSettings(small_waiting=1))
    holding = estimator._small.run(gate.wait)
    hurried = asyncio.ensure_future(estimator.appraise(CHAT, chat("a" * 400, max_tokens=5)))
    await asyncio.sleep(0)
    gate.set()
    await holding
    assert (await hurried).demand == Demand(100 + TURN + REPLY, max_output_tokens=5, is_exact=False)
    assert (await estimator.appraise(CHAT, chat("hi"))).demand.is_exact
    estimator.close()


@pytest.mark.parametrize(("size", "encoding"), [(900_000, ""), (100, "gzip")])
async def test_small_bodies_do_not_wait_behind_large_or_packed_ones(estimator, size, encoding):
    gate = threading.Event()
    holding = estimator._large.run(gate.wait)
    body = chat("a" * size)
    large = asyncio.ensure_future(
        estimator.appraise(CHAT, gzip.compress(body) if encoding else body, encoding)
    )
    small = await estimator.appraise(CHAT, chat("hi"))
    assert small.demand.is_exact
    assert not large.done()
    gate.set()
    await asyncio.gather(holding, large)


def test_an_explanation_adds_up(estimator, oracle):
    body = chat("Why?", [IMAGE], tools=TOOLS, max_tokens=50, n=2, stream=True)
    assert estimator.explain(CHAT, body) == {
        "endpoint": "chat_completions",
        "dialect": "openai",
        "model": "llama",
        "encoding": "cl100k_base",
        "body_bytes": len(body),
        "prompt_tokens": oracle(json.dumps(TOOLS)) + oracle("Why?") + 765 + 2 * TURN + REPLY,
        "is_exact": False,
        "tokens_by_section": {"tools": oracle(json.dumps(TOOLS)), "messages": oracle("Why?")},
        "media": [{"kind": "image", "tokens": 765}],
        "framing_tokens": 2 * TURN + REPLY,
        "truncated_to_tokens": None,
        "prompts": 1,
        "answers": 2,
        "max_output_tokens": 50,
        "is_streaming": True,
    }
    orjson.dumps(estimator.explain(CHAT, body))


def test_warming_up_loads_every_encoding(estimator):
    estimator.warm_up()


@pytest.mark.parametrize(
    "field", [{"exact_bytes": 5}, {"threads": 2}, {"encodings": {"a": "p50k"}}, {"media": {"x": 1}}]
)
def test_settings_know_their_fields_and_ranges(field):
    with pytest.raises(ValueError, match=next(iter(field))):
        EstimationSettings(**field)


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=50)
def test_any_bytes_are_appraised_or_refused(body):
    async def appraise() -> bool:
        estimator = TiktokenEstimator()
        try:
            return (await estimator.appraise(CHAT, body)).demand.prompt_tokens >= 0
        except BadRequest:
            return True
        finally:
            estimator.close()

    assert asyncio.run(appraise())
