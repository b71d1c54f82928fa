"""Bodies nobody should send: each gets a clear answer, and none of it is repeated in one."""

from __future__ import annotations

import gzip
import traceback
import zlib

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.dialects import BodyLimits, InferenceBody, read, recognise
from extproc.domain.errors import BadRequest, BodyTooLarge

PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"]
PATHS += ["/generate", "/generate_stream", "/v1/score", "/v1/rerank"]
CHAT = recognise("/v1/chat/completions")
HELLO = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})


def short(value: object) -> str | None:
    """Name a parameter by its beginning: some are large, and no two workers may name one differently."""
    return repr(value[:24]) if isinstance(value, bytes | str) else None


def fault_of(
    body: bytes, encoding: str = "", path: str = "/v1/chat/completions", **limits: int
) -> BadRequest:
    with pytest.raises(BadRequest) as raised:
        read(recognise(path), body, encoding, BodyLimits(**limits))
    return raised.value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty"),
        (b"   ", "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"messages": [', "not valid JSON"),
        (b'{"a": 1} {"b": 2}', "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": "\xff\xfe"}', "not valid JSON"),
        (b'{"a": "\\ud800"}', "not valid JSON"),
        (b"\x00" * 40, "not valid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not valid JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b'"x"', "must be a JSON object, not a string"),
        (b"null", "must be a JSON object, not null"),
        (b"1.5", "must be a JSON object, not a number"),
    ],
    ids=short,
)
@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_a_json_object_is_refused(path, body, message):
    fault = fault_of(body, path=path)
    assert message in str(fault)
    assert fault.param is None


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (PATHS[0], {}, "messages"),
        (PATHS[0], {"messages": None}, "messages"),
        (PATHS[0], {"messages": "hi"}, "messages"),
        (PATHS[0], {"messages": {"role": "user"}}, "messages"),
        (PATHS[0], {"messages": ["hi"]}, "messages[0]"),
        (PATHS[0], {"messages": [{"role": 1}]}, "messages[0].role"),
        (PATHS[0], {"messages": [{"content": 1}]}, "messages[0].content"),
        (PATHS[0], {"messages": [{"content": [["hi"]]}]}, "messages[0].content[0]"),
        (PATHS[0], {"messages": [{}, {"content": [{"text": 5}]}]}, "messages[1].content[0].text"),
        (PATHS[0], {"messages": [], "model": 5}, "model"),
        (PATHS[0], {"messages": [], "max_tokens": "100"}, "max_tokens"),
        (PATHS[0], {"messages": [], "max_tokens": True}, "max_tokens"),
        (PATHS[0], {"messages": [], "max_tokens": -1}, "max_tokens"),
        (PATHS[0], {"messages": [], "max_tokens": 1.5}, "max_tokens"),
        (PATHS[0], {"messages": [], "max_completion_tokens": [1]}, "max_completion_tokens"),
        (PATHS[0], {"messages": [], "n": 0}, "n"),
        (PATHS[0], {"messages": [], "best_of": "2"}, "best_of"),
        (PATHS[0], {"messages": [], "stream": "true"}, "stream"),
        (PATHS[0], {"messages": [], "stream_options": True}, "stream_options"),
        (PATHS[0], {"messages": [], "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        (PATHS[0], {"messages": [], "priority": "high"}, "priority"),
        (PATHS[0], {"messages": [], "service_tier": 1}, "service_tier"),
        (PATHS[0], {"messages": [], "tools": {}}, "tools"),
        (PATHS[0], {"messages": [], "response_format": "json"}, "response_format"),
        (PATHS[1], {"prompt": 5}, "prompt"),
        (PATHS[1], {"prompt": ["a", 5]}, "prompt[1]"),
        (PATHS[1], {"prompt": [True, False]}, "prompt[0]"),
        (PATHS[2], {"input": {"role": "user"}}, "input"),
        (PATHS[3], {}, "input"),
        (PATHS[4], {"messages": [], "system": 1}, "system"),
        (PATHS[5], {}, "inputs"),
        (PATHS[5], {"inputs": ["a"]}, "inputs"),
        (PATHS[5], {"inputs": "a", "parameters": []}, "parameters"),
        (PATHS[5], {"inputs": "a", "parameters": {"max_new_tokens": "9"}}, "parameters.max_new_tokens"),
        (PATHS[8], {"query": 1, "documents": []}, "query"),
    ],
)
def test_a_wrong_type_names_its_field(path, fields, param):
    fault = fault_of(orjson.dumps(fields), path=path)
    assert fault.param == param
    assert f"'{param}'" in str(fault)


@pytest.mark.parametrize("depth", [260, 900])
def test_tools_too_deep_to_print_are_refused(depth):
    tool = b'{"a":' * depth + b"1" + b"}" * depth
    assert fault_of(b'{"messages":[],"tools":[%b]}' % tool).param == "tools"


def test_content_too_deep_to_walk_is_refused():
    content = b'[{"content":' * 500 + b'"x"' + b"}]" * 500
    assert str(fault_of(b'{"messages":[{"content":%b}]}' % content)) == "the body is nested too deeply"


def test_depth_where_nobody_looks_does_not_matter():
    read(CHAT, b'{"messages":[],"metadata":%b}' % (b"[" * 900 + b"]" * 900))


def test_a_body_beyond_the_limit_is_too_large():
    with pytest.raises(BodyTooLarge, match="larger than 16777216 bytes"):
        read(CHAT, b'{"messages":[{"content":"' + b"a" * (20 << 20) + b'"}]}')


@pytest.mark.parametrize(
    "junk", [b"[" + b"[]," * 200_000 + b"[]]", b"[" + b"1," * 1_000_000 + b"1]"], ids=short
)
def test_structure_that_would_stop_all_threads_is_too_large(junk):
    assert isinstance(fault_of(b'{"messages":[],"x":%b}' % junk), BodyTooLarge)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        (" GZIP ", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda b: zlib.compress(b, wbits=-15)),
        ("identity", bytes),
    ],
)
def test_encoded_bodies_are_read(encoding, pack):
    assert read(CHAT, pack(HELLO), encoding) == read(CHAT, HELLO)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_bomb_is_too_large(pack):
    bomb = pack(b"a" * (32 << 20))
    assert len(bomb) < 40_000
    assert isinstance(fault_of(bomb, "gzip" if pack is gzip.compress else "deflate"), BodyTooLarge)


def test_a_body_that_inflates_to_the_limit_is_read():
    body = HELLO + b" " * 9_000
    packed = gzip.compress(body)
    assert read(CHAT, packed, "gzip", BodyLimits(body_bytes=len(body))).model == "m"
    assert isinstance(fault_of(packed, "gzip", body_bytes=len(body) - 1), BodyTooLarge)


@pytest.mark.parametrize(
    ("body", "encoding", "message"),
    [
        (HELLO, "gzip", "not valid gzip"),
        (HELLO, "deflate", "not valid deflate"),
        (b"", "gzip", "cut short"),
        (gzip.compress(HELLO, mtime=0)[:-9], "gzip", "cut short"),
        (gzip.compress(HELLO, mtime=0) + b"more", "gzip", "followed by other bytes"),
        (HELLO, "br", "content-encoding 'br' is not supported"),
        (HELLO, "zstd", "content-encoding 'zstd' is not supported"),
        (HELLO, "gzip, gzip", "content-encoding 'gzip, gzip' is not supported"),
        (HELLO, "é" * 99, "is not supported"),
    ],
    ids=short,
)
def test_an_encoding_we_do_not_undo_is_refused_by_name(body, encoding, message):
    fault = fault_of(body, encoding)
    assert message in str(fault)
    assert fault.param is None
    assert len(str(fault)) < 300


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b'{"messages": [{"content": "sesame', ""),
        (b'{"messages": "sesame"}', ""),
        (b'{"messages": [{"role": ["sesame"]}]}', ""),
        (b'{"messages": [], "sesame": "\xff"}', ""),
        (b'{"messages": [], "tools": [{"sesame":' + b"[" * 300 + b"]" * 300 + b"}]}", ""),
        (b"sesame", "gzip"),
    ],
    ids=short,
)
def test_no_fault_holds_what_the_client_wrote(body, encoding):
    fault = fault_of(body, encoding)
    assert "sesame" not in "".join(traceback.format_exception(fault, chain=True))
    while fault is not None:
        assert "sesame" not in f"{fault} {fault.args} {vars(fault)}"
        fault = fault.__context__


KEYS = """
    model messages role content type text name tool_calls function arguments input source data image_url detail url
    prompt suffix inputs parameters max_new_tokens max_tokens n best_of stream stream_options include_usage priority
    service_tier tools response_format json_schema instructions output summary query documents text_1 text_2 file
    truncate truncate_prompt_tokens input_ids sampling_params system output_config format
"""
SCALARS = st.none() | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(KEYS.split()) | st.text(st.characters(codec="utf-8"), max_size=3)
JSON = st.recursive(
    SCALARS | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=25,
)


def read_or_refused(path: str, body: bytes, encoding: str = "") -> bool:
    try:
        return isinstance(read(recognise(path), body, encoding), InferenceBody)
    except BadRequest as fault:
        return str(fault) != ""


@given(path=st.sampled_from(PATHS), value=JSON)
@settings(deadline=None)
def test_any_json_is_read_or_refused(path, value):
    assert read_or_refused(path, orjson.dumps(value))


@given(path=st.sampled_from(PATHS), fields=st.dictionaries(NAMES, JSON, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_object_is_read_or_refused(path, fields):
    assert read_or_refused(path, orjson.dumps(fields))


@given(
    body=st.binary(max_size=200),
    encoding=st.sampled_from(["", "gzip", "deflate", "br"]) | st.text(max_size=5),
)
@settings(deadline=None)
def test_any_bytes_are_read_or_refused(body, encoding):
    assert read_or_refused(PATHS[0], body, encoding)
