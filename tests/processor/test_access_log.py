"""How responses ended, against Envoy's own access-log types."""

from __future__ import annotations

from datetime import timedelta

import pytest
from envoy_data_plane.envoy.config.core.v3 import Metadata
from envoy_data_plane.envoy.data.accesslog.v3 import (
    AccessLogCommon,
    HttpAccessLogEntry,
    HttpResponseProperties,
    ResponseFlags,
)
from envoy_data_plane.envoy.service.accesslog.v3 import (
    StreamAccessLogsMessage,
    StreamAccessLogsMessageHttpAccessLogEntries,
    StreamAccessLogsMessageIdentifier,
)
from envoy_data_plane.google.protobuf import Any, Struct, Value

from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended, Foresight
from extproc.domain.tokens import Usage
from extproc.processor import access_log
from extproc.processor.foresight import foresight_fields

FIELDS = {"pool": "llama-70b", "class": "batch", "ticket": "t-1"}

# What Envoy 1.40 sent for a stream of vLLM's `/v1/responses`: 6 + 3 tokens, 0 of them cached, status COMPLETE.
TOKEN_USAGE = bytes.fromhex("0801120474696e791a020806220208032a02080932040a0012003a020a00420208094801")
TYPE_URL = "type.googleapis.com/envoy.data.ai.v3.TokenUsage"


def entry(
    *flags: str,
    code: int | None = 200,
    fields: dict[str, str] | None = FIELDS,
    typed: bytes | None = None,
    untyped: dict[str, Value] | None = None,
    headers: dict[str, str] | None = None,
    **times_s: float,
) -> HttpAccessLogEntry:
    namespaces = {"envoy.lb": Struct()}
    if fields is not None:
        namespaces["forebay"] = Struct(fields={k: Value(string_value=v) for k, v in fields.items()})
    if untyped is not None:
        namespaces["forebay.usage"] = Struct(fields=untyped)
    usage = {} if typed is None else {"envoy.ai.token_usage": Any(type_url=TYPE_URL, value=typed)}
    return HttpAccessLogEntry(
        common_properties=AccessLogCommon(
            metadata=Metadata(filter_metadata=namespaces, typed_filter_metadata=usage),
            response_flags=ResponseFlags(**dict.fromkeys(flags, True)) if flags else None,
            **{name: timedelta(seconds=s) for name, s in times_s.items()},
        ),
        response=HttpResponseProperties(
            response_code=code, response_body_bytes=10, response_headers=headers or {}
        ),
    )


def read(*entries: HttpAccessLogEntry) -> list[Ended]:
    message = StreamAccessLogsMessage(
        identifier=StreamAccessLogsMessageIdentifier(log_name="forebay"),
        http_logs=StreamAccessLogsMessageHttpAccessLogEntries(log_entry=list(entries)),
    )
    return access_log.read(bytes(message))


def test_an_entry_brings_back_what_the_metadata_said():
    assert read(entry()) == [Ended("llama-70b", "batch", "t-1", Ending.COMPLETE, body_bytes=10)]


def test_what_was_foreseen_comes_back():
    foresight = Foresight("llama", "acme", 90, 100, 50, None, 1)
    [ended] = read(entry(fields=FIELDS | foresight_fields(foresight)))
    assert ended.foresight == foresight


def test_entries_of_requests_that_were_not_admitted_are_left_out():
    refused, untouched = entry(code=429, fields=None), entry(fields={"ticket": "-"})
    assert read(refused, entry(), untouched) == read(entry())


@pytest.mark.parametrize(
    ("flags", "code", "ending"),
    [
        ((), 200, Ending.COMPLETE),
        ((), 400, Ending.COMPLETE),
        ((), 429, Ending.UPSTREAM_ERROR),
        ((), 500, Ending.UPSTREAM_ERROR),
        ((), 503, Ending.UPSTREAM_ERROR),
        ((), 0, Ending.CLIENT_GONE),
        ((), None, Ending.CLIENT_GONE),
        (("downstream_connection_termination",), 200, Ending.CLIENT_GONE),
        (("downstream_remote_reset",), 200, Ending.CLIENT_GONE),
        (("upstream_request_timeout",), 504, Ending.TIMEOUT),
        (("stream_idle_timeout",), 200, Ending.TIMEOUT),
        (("duration_timeout",), 200, Ending.TIMEOUT),
        (("upstream_max_stream_duration_reached",), 200, Ending.TIMEOUT),
        (("upstream_remote_reset",), 200, Ending.UPSTREAM_RESET),
        (("upstream_connection_failure",), 503, Ending.UPSTREAM_RESET),
        (("upstream_connection_termination",), 503, Ending.UPSTREAM_RESET),
        (("upstream_protocol_error",), 502, Ending.UPSTREAM_RESET),
        (("local_reset",), 200, Ending.UPSTREAM_RESET),
        (("downstream_remote_reset", "upstream_remote_reset"), 200, Ending.CLIENT_GONE),
    ],
)
def test_flags_and_status_say_why_a_response_ended(flags, code, ending):
    [ended] = read(entry(*flags, code=code))
    assert ended.ending is ending


@pytest.mark.parametrize(
    "flag",
    [
        "failed_local_healthcheck",
        "no_healthy_upstream",
        "upstream_overflow",
        "no_route_found",
        "delay_injected",
        "fault_injected",
        "rate_limited",
        "rate_limit_service_error",
        "invalid_envoy_request_headers",
        "response_from_cache_filter",
        "no_filter_config_found",
        "no_cluster_found",
        "overload_manager",
        "dns_resolution_failure",
    ],
)
def test_flags_that_say_nothing_of_the_end_are_not_mistaken_for_others(flag):
    [ended] = read(entry(flag))
    assert ended.ending is Ending.COMPLETE


def number(value: float) -> Value:
    return Value(number_value=value)


COUNTS = {"prompt_tokens": number(8), "output_tokens": number(5), "cached_tokens": number(2)}


def test_usage_is_taken_from_either_filter():
    [typed, untyped] = read(entry(typed=TOKEN_USAGE), entry(untyped=COUNTS))
    assert typed.usage == Usage(6, 3, 0)
    assert untyped.usage == Usage(8, 5, 2)


def test_a_count_that_is_not_reported_is_none():
    input_alone = bytes.fromhex("1a0208064801")
    [typed, untyped] = read(entry(typed=input_alone), entry(untyped={"output_tokens": number(5)}))
    assert typed.usage == Usage(6, None, None)
    assert untyped.usage == Usage(None, 5, None)


@pytest.mark.parametrize("flag", ["downstream_connection_termination", "upstream_remote_reset"])
def test_a_response_that_was_cut_short_has_no_usage(flag):
    [typed, untyped] = read(entry(flag, typed=TOKEN_USAGE), entry(flag, untyped=COUNTS))
    assert (typed.usage, untyped.usage) == (None, None)


@pytest.mark.parametrize(
    "typed",
    [
        TOKEN_USAGE[:-2],  # no status
        TOKEN_USAGE[:-1] + b"\2",  # PARTIAL
        TOKEN_USAGE[:-1] + b"\3",  # FAILED
        bytes.fromhex("4801"),  # COMPLETE, without a count
        bytes.fromhex("1a0b08ffffffffffffffffff014801"),  # 2^64 - 1 tokens
        b"\xff\xff",
        b"",
    ],
)
def test_what_envoy_is_not_sure_of_or_cannot_be_is_no_usage(typed):
    [ended] = read(entry(typed=typed))
    assert ended.usage is None


@pytest.mark.parametrize(
    "value",
    [
        number(-1),
        number(0.5),
        number(1e300),
        number(float("inf")),
        number(float("nan")),
        Value(string_value="5"),
        Value(),
    ],
)
def test_what_is_no_number_of_tokens_is_no_usage(value):
    [ended] = read(entry(untyped={"output_tokens": value}))
    assert ended.usage is None


def test_times_run_from_the_first_byte_to_the_engine():
    """All of Envoy's run from the client's first byte, and the hold would be in them."""
    times_s = {
        "time_to_first_upstream_tx_byte": 20.75,
        "time_to_first_upstream_rx_byte": 21.25,
        "duration": 30,
    }
    [ended] = read(entry(**times_s))
    assert (ended.first_byte_s, ended.duration_s) == (0.5, 9.25)


@pytest.mark.parametrize(
    "times_s",
    [
        {},
        {"duration": 3},
        {"time_to_first_upstream_tx_byte": 3},
        {"time_to_first_upstream_tx_byte": 3, "time_to_first_upstream_rx_byte": 2, "duration": 2.9},
    ],
)
def test_times_that_are_missing_or_go_backwards_are_none(times_s):
    [ended] = read(entry(**times_s))
    assert (ended.first_byte_s, ended.duration_s) == (None, None)


@pytest.mark.parametrize(
    ("content_type", "is_streaming"),
    [("text/event-stream; charset=utf-8", True), ("Text/Event-Stream", True), ("application/json", False)],
)
def test_the_content_type_says_whether_it_was_a_stream(content_type, is_streaming):
    [ended] = read(entry(headers={"content-type": content_type}))
    assert ended.is_streaming is is_streaming


def test_other_bytes_are_a_violation():
    with pytest.raises(ProtocolViolation):
        access_log.read(b"\xff\xff")
