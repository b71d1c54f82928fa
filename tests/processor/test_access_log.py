"""How responses ended, against Envoy's own access-log types."""

from __future__ import annotations

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
from envoy_data_plane.google.protobuf import Struct, Value

from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended
from extproc.processor import access_log

FIELDS = {"pool": "llama-70b", "class": "batch", "ticket": "t-1"}


def entry(*flags: str, code: int | None = 200, fields: dict[str, str] | None = FIELDS) -> HttpAccessLogEntry:
    namespaces = {"envoy.lb": Struct()}
    if fields is not None:
        namespaces["forebay"] = Struct(fields={k: Value(string_value=v) for k, v in fields.items()})
    return HttpAccessLogEntry(
        common_properties=AccessLogCommon(
            metadata=Metadata(filter_metadata=namespaces),
            response_flags=ResponseFlags(**dict.fromkeys(flags, True)) if flags else None,
        ),
        response=HttpResponseProperties(response_code=code, response_body_bytes=10),
    )


def read(*entries: HttpAccessLogEntry) -> list[Ended]:
    message = StreamAccessLogsMessage(
        identifier=StreamAccessLogsMessageIdentifier(log_name="forebay"),
        http_logs=StreamAccessLogsMessageHttpAccessLogEntries(log_entry=list(entries)),
    )
    return access_log.read(bytes(message))


def test_an_entry_brings_back_what_the_metadata_said():
    assert read(entry()) == [Ended("llama-70b", "batch", "t-1", Ending.COMPLETE)]


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


def test_other_bytes_are_a_violation():
    with pytest.raises(ProtocolViolation):
        access_log.read(b"\xff\xff")
