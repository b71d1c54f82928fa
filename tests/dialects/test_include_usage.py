"""Usage asked for in a client's stead, and kept from it."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from dialects.streams import RECORDED, cut

from extproc.dialects import read, recognise
from extproc.dialects.include_usage import UsageHider, asking_for_usage

USAGE = {"include_usage": True}


def asked(body: bytes, *, path: str = "/v1/chat/completions", encoding: str = "") -> bytes | None:
    endpoint = recognise(path)
    return asking_for_usage(endpoint, read(endpoint, body), body, encoding)


def chat(**more: object) -> bytes:
    return orjson.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
    )


def test_a_stream_that_would_be_silent_is_asked_to_tell():
    assert orjson.loads(asked(chat())) == orjson.loads(chat(stream_options=USAGE))
    completion = b' {"model": "m", "prompt": "Hi", "stream": true}'
    assert orjson.loads(asked(completion, path="/v1/completions"))["stream_options"] == USAGE


def test_what_the_client_wrote_stays_as_it_wrote_it():
    body = b'\n{ "seed": 1e400, "big": 123456789012345678901234567890, "messages": [], "stream": true }\n'
    plain = b'{"seed": 1, "messages": [], "stream": true}'
    endpoint = recognise("/v1/chat/completions")
    changed = asking_for_usage(endpoint, read(endpoint, plain), body)
    assert changed == b'\n{"stream_options":{"include_usage":true},' + body[2:]


@pytest.mark.parametrize("options", [None, {}, {"continuous_usage_stats": True}, {"include_usage": None}])
def test_other_stream_options_are_kept(options):
    wanted = {k: v for k, v in (options or {}).items() if v is not None} | USAGE
    assert orjson.loads(asked(chat(stream_options=options)))["stream_options"] == wanted


@pytest.mark.parametrize(
    ("body", "path", "encoding"),
    [
        (chat(stream_options=USAGE), "/v1/chat/completions", ""),
        (chat(stream_options={"include_usage": False}), "/v1/chat/completions", ""),
        (chat(stream=False), "/v1/chat/completions", ""),
        (chat(max_tokens=5), "/v1/messages", ""),
        (b'{"model": "m", "input": "x", "stream": true}', "/v1/responses", ""),
        (b'{"inputs": "x", "stream": true}', "/generate", ""),
        (chat(), "/v1/chat/completions", "gzip"),
    ],
    ids=["asked", "said no", "no stream", "anthropic", "responses", "tgi", "compressed"],
)
def test_where_there_is_nothing_to_ask_the_body_stays(body, path, encoding):
    assert asked(body, path=path, encoding=encoding) is None


def hidden(*chunks: bytes) -> list[bytes]:
    hider = UsageHider()
    return [hider.pass_on(chunk, is_last=n == len(chunks)) for n, chunk in enumerate(chunks, 1)]


EVENT = b'data: {"choices":[],"usage":{"prompt_tokens":8}}'
CONTENT = b'data: {"choices":[{"delta":{"content":"\\"choices\\":[] \\"usage\\":{"}}]}'


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_only_the_usage_event_is_taken_out(end):
    events = [b": hello", CONTENT, EVENT, b"data: [DONE]"]
    body = b"".join(event + 2 * end for event in events)
    without = b"".join(event + 2 * end for event in events if event is not EVENT)
    assert hidden(body) == [without]
    rng = Random(1)
    for _ in range(500):
        assert b"".join(hidden(*cut(rng, body))) == without


@pytest.mark.parametrize("name", ["chat_stream_usage.sse", "completion_stream_usage.sse"])
def test_a_recorded_stream_is_left_as_if_nobody_had_asked(name):
    body = (RECORDED / name).read_bytes()
    events = body.split(b"\n\n")
    assert b"".join(hidden(body)) == b"\n\n".join(e for e in events if b'"choices":[]' not in e)


def test_whole_events_are_passed_on_at_once():
    chunks = [CONTENT + b"\n\n", CONTENT + b"\n\n" + CONTENT + b"\n\n", EVENT + b"\n\n", b"data: [DONE]\n\n"]
    assert hidden(*chunks) == [*chunks[:2], b"", chunks[3]]


def test_a_part_of_an_event_waits_for_its_rest():
    assert hidden(CONTENT[:20], CONTENT[20:] + b"\n", b"\n" + EVENT[:9], EVENT[9:] + b"\n\n", b"data: x") == [
        b"",
        b"",
        CONTENT + b"\n\n",
        b"",
        b"data: x",
    ]


def test_what_is_no_event_is_not_kept_for_long():
    piece = b"x" * 30_000
    assert hidden(piece, piece, piece, b"y") == [b"", b"", piece * 3, b"y"]


def test_an_event_without_choices_that_tells_no_usage_is_the_clients():
    filters = b'data: {"choices":[],"prompt_filter_results":[]}\n\n'
    assert hidden(filters) == [filters]
