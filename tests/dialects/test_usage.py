"""What is found in the bodies of responses, however they are cut."""

from __future__ import annotations

import json
from random import Random

import pytest
from dialects.streams import RECORDED, cut, made_up

from extproc.dialects.usage import UsageReader
from extproc.domain.tokens import Usage


def read(*chunks: bytes, is_streaming: bool = True) -> UsageReader:
    reader = UsageReader(is_streaming=is_streaming)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def told(reader: UsageReader) -> tuple[Usage | None, int, bool]:
    return reader.usage, reader.events, reader.is_complete


STREAMS = {
    "chat_stream_usage.sse": (Usage(8, 5), 5),
    "chat_stream_continuous_usage.sse": (Usage(8, 5), 5),
    "chat_stream_nousage.sse": (None, 5),
    "completion_stream_usage.sse": (Usage(3, 3), 3),
    "responses_stream.sse": (Usage(6, 3, 0), 2),
    "messages_stream.sse": (Usage(6, 3), 3),
    "err_503_queue_full.sse": (None, 0),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_vllm_streams_is_read(name):
    usage, events = STREAMS[name]
    assert told(read((RECORDED / name).read_bytes())) == (usage, events, True)


DOCUMENTS = {
    "chat.json": Usage(8, 8),
    "ok_completions.json": Usage(5, 4),
    "ok_responses.json": Usage(8, 4, 0),
    "ok_messages.json": Usage(6, 4),
    "models.json": None,
    "err_404_model.json": None,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_vllm_answers_in_one_piece_is_read(name):
    body = (RECORDED / name).read_bytes()
    reader = read(body[:50], body[50:], is_streaming=False)
    assert told(reader) == (DOCUMENTS[name], 0, True)


ANSWERS = {
    "embeddings": ({"data": [], "usage": {"prompt_tokens": 7, "total_tokens": 7}}, Usage(7)),
    "rerank": ({"results": [], "usage": {"total_tokens": 56}}, Usage(56)),
    "tgi": ({"generated_text": "x", "details": {"generated_tokens": 3, "input_length": 5}}, Usage(5, 3)),
    "tgi's list": (
        [{"generated_text": "x", "details": {"generated_tokens": 3, "prefill": [{"id": 1}, {"id": 2}]}}],
        Usage(2, 3),
    ),
    "tgi without prefill": ([{"details": {"generated_tokens": 3, "prefill": []}}], Usage(None, 3)),
    "tgi's best of 3": (
        [{"details": {"generated_tokens": 3, "best_of_sequences": [{"generated_tokens": 4}, {}, 1]}}],
        Usage(None, 7),
    ),
    "two prompts": ([{"details": {"generated_tokens": n, "input_length": 1}} for n in (3, 4)], Usage(2, 7)),
    "openai's cached are among the prompt's": (
        {
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 8},
            }
        },
        Usage(9, 2, 8),
    ),
    "anthropic's cached come on top": (
        {
            "usage": {
                "input_tokens": 9,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 1000,
                "output_tokens": 2,
            }
        },
        Usage(1109, 2, 100),
    ),
    "anthropic's names beside openai's": (
        {"usage": {"prompt_tokens": 109, "completion_tokens": 2, "cache_read_input_tokens": 100}},
        Usage(109, 2, 100),
    ),
    "null": ({"usage": None}, None),
    "no object": ({"usage": 5, "details": "none", "message": "text", "response": []}, None),
    "no counts": (
        {
            "usage": {
                "prompt_tokens": -1,
                "completion_tokens": True,
                "output_tokens": 1.5,
                "total_tokens": "9",
            }
        },
        None,
    ),
    "nonsense": ({"usage": {"prompt_tokens": 2**63, "completion_tokens": 1}}, Usage(None, 1)),
    "details that are none": ({"usage": {"prompt_tokens": 1, "prompt_tokens_details": [1]}}, Usage(1)),
    "a list of anything": ([1, None, "x", {"details": {"prefill": {}}}], None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_dialect_names_its_counts_in_its_own_way(name):
    answer, usage = ANSWERS[name]
    assert told(read(json.dumps(answer).encode(), is_streaming=False)) == (usage, 0, True)


@pytest.mark.parametrize("body", [b"", b"{", b"5", b'"usage"', b"\xff", b'{"usage":{"prompt_tokens":1}'])
def test_what_is_no_document_tells_nothing(body):
    assert told(read(body, is_streaming=False)) == (None, 0, False)


def test_a_document_is_read_at_its_end_only():
    reader = UsageReader(is_streaming=False)
    reader.feed(b'{"usage":{"prompt_tokens":1}}')
    assert told(reader) == (None, 0, False)
    reader.finish()
    assert told(reader) == (Usage(1), 0, True)


def test_a_document_beyond_the_bound_is_not_kept():
    reader = UsageReader(is_streaming=False, max_json_bytes=100)
    for _ in range(3):
        reader.feed(b'{"usage":{"prompt_tokens":1}}' + b" " * 50)
    reader.finish()
    assert told(reader) == (None, 0, False)


def test_anthropic_tells_the_prompt_first_and_the_output_last():
    start = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}
    reader = read(sse({"type": "message_start", "message": {"usage": start}}))
    assert told(reader) == (Usage(25, 1, 20), 0, False)
    reader = read(
        sse(
            {"type": "message_start", "message": {"usage": start}},
            {"type": "message_delta", "usage": {"output_tokens": 9, "input_tokens": 5}},
            {"type": "message_stop"},
        )
    )
    assert told(reader) == (Usage(25, 9, 20), 0, True)


def test_usage_over_several_chunks_comes_together_and_the_later_value_counts():
    parts = [{"prompt_tokens": 4}, {"completion_tokens": 1}, {"completion_tokens": 2, "prompt_tokens": None}]
    assert read(sse(*({"choices": [], "usage": part} for part in parts))).usage == Usage(4, 2)


@pytest.mark.parametrize("end", ["response.completed", "response.incomplete", "response.failed"])
def test_a_response_ends_in_three_ways(end):
    assert read(sse({"response": {"usage": None}, "type": end})).is_complete


def test_a_tool_call_is_content_though_its_text_is_null():
    call = {"choices": [{"delta": {"content": None, "tool_calls": [{"function": {"arguments": "{"}}]}}]}
    assert read(sse(call)).events == 1


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"usage": {"prompt_tokens": 1}, oops\n\n',
        b'data: {"usage": {\xff\n\n',
        b'event: {"usage": {"prompt_tokens": 1}}\n\n',
        b': {"usage": {"prompt_tokens": 1}}\n\n',
        b' data: {"usage": {"prompt_tokens": 1}}\n\n',
        b'data: [{"usage": {"prompt_tokens": 1}}]\n\n',
        b"\xff\xfe\x00",
        b"\r\n\r\n\n\n\r\r",
    ],
)
def test_nonsense_tells_nothing(body):
    assert told(read(body)) == (None, 0, False)


def test_an_end_without_a_line_end_is_an_end():
    assert read(b"data: [DONE]").is_complete
    assert read(b'data: {"usage":{"total_tokens":3}}\n').usage == Usage(3)


@pytest.mark.parametrize("piece_bytes", [1 << 22, 60_000])
@pytest.mark.parametrize(
    "large",
    [
        b"data: " + b"x" * (1 << 20) + b"\n",
        b"data: " + b"x" * 600_000 + b"\ndata: " + b"x" * 600_000 + b'\ndata: {"usage":{"total_tokens":9}}\n',
        b": " + b"x" * (1 << 21) + b'\ndata: {"usage":{"total_tokens":9}}\n',
        b"data:\n" * (1 << 20) + b'data: {"usage":{"total_tokens":9}}\n',
    ],
    ids=["line", "lines", "comment", "empty lines"],
)
def test_an_event_beyond_the_bound_is_passed_over_and_the_next_is_read(large, piece_bytes):
    body = sse({"usage": {"prompt_tokens": 1}}) + large + b"\n" + sse({"usage": {"completion_tokens": 2}})
    pieces = [body[i : i + piece_bytes] for i in range(0, len(body), piece_bytes)]
    assert read(*pieces).usage == Usage(1, 2)


def test_a_line_without_end_does_not_fill_memory():
    reader = UsageReader(is_streaming=True)
    for _ in range(100):
        reader.feed(b"x" * 100_000)
    assert sum(map(len, reader._splitter._line)) <= 1 << 20


@pytest.mark.parametrize(
    "streams", [3_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_streams_cut_anywhere_tell_what_they_tell_uncut(streams):
    """Of every dialect, as the standard lets them be written; one in ten recorded, cut likewise."""
    rng = Random(streams)
    recorded = {name: (RECORDED / name).read_bytes() for name in STREAMS}
    for number in range(streams):
        if number % 10:
            stream = made_up(rng)
            body, expected = stream.body, (stream.usage, stream.events, stream.is_complete)
        else:
            name = rng.choice(list(recorded))
            body, expected = recorded[name], (*STREAMS[name], True)
        assert told(read(body)) == expected, body
        pieces = cut(rng, body)
        assert told(read(*pieces)) == expected, pieces
