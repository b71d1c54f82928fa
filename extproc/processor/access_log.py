"""How responses ended and what they took, from Envoy's gRPC access log.

It teaches and counts; it never releases: it may be late, land on another replica, or be lost. What an entry
does not tell, or cannot mean, is None.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended
from extproc.domain.tokens import Usage
from extproc.processor.foresight import read_foresight
from extproc.processor.messages import NAMESPACE
from extproc.processor.proto import forebay_pb2 as wire

_TYPED_USAGE = "envoy.ai.token_usage"
"""Where `ai_protocol_manager` leaves an `envoy.data.ai.v3.TokenUsage`."""

_UNTYPED_USAGE = "forebay.usage"
"""Where `sse_to_metadata` leaves its numbers; the name is ours, from the bootstrap."""

_MOST_TOKENS = 2**40
"""More than any response takes: an engine that reports more reports nonsense."""


def read(data: bytes) -> list[Ended]:
    """Decode a StreamAccessLogsMessage; entries of unmanaged requests are left out.

    Raises:
        ProtocolViolation: the bytes are none.
    """
    try:
        message = wire.StreamAccessLogsMessage.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation(f"not a StreamAccessLogsMessage ({len(data)} bytes)") from error
    return [ended for entry in message.http_logs.log_entry if (ended := _read(entry)) is not None]


def _read(entry: wire.HttpAccessLogEntry) -> Ended | None:
    common, response = entry.common_properties, entry.response
    namespaces = common.metadata.filter_metadata
    if NAMESPACE not in namespaces:
        return None
    fields = {name: value.string_value for name, value in namespaces[NAMESPACE].fields.items()}
    if "pool" not in fields:
        return None
    why = ending(entry)
    return Ended(
        fields["pool"],
        fields.get("class", ""),
        fields.get("ticket", ""),
        why,
        foresight=read_foresight(fields),
        usage=_usage(common.metadata) if why is Ending.COMPLETE else None,
        body_bytes=response.response_body_bytes,
        duration_s=_since_upstream(common, "duration"),
        first_byte_s=_since_upstream(common, "time_to_first_upstream_rx_byte"),
        is_streaming=response.response_headers.get("content-type", "")
        .lower()
        .startswith("text/event-stream"),
    )


def _since_upstream(common: wire.AccessLogCommon, moment: str) -> float | None:
    """Return the seconds from when an engine got the first of a request, just admitted, to a moment."""
    begin = "time_to_first_upstream_tx_byte"
    if not (common.HasField(begin) and common.HasField(moment)):
        return None
    start, end = getattr(common, begin), getattr(common, moment)
    passed_s = (end.seconds - start.seconds) + (end.nanos - start.nanos) / 1e9
    return passed_s if passed_s >= 0 else None


def _usage(metadata: wire.Metadata) -> Usage | None:
    """Return what the engine reported, whoever of Envoy's filters read it.

    Only of a response that ended well: `sse_to_metadata` writes down every count that passes, so a stream cut
    short leaves the count so far.
    """
    usage = _typed_usage(metadata) or _untyped_usage(metadata)
    return None if usage == Usage() else usage


def _typed_usage(metadata: wire.Metadata) -> Usage | None:
    packed = metadata.typed_filter_metadata.get(_TYPED_USAGE)
    if packed is None:
        return None
    try:
        usage = wire.TokenUsage.FromString(packed.value)
    except DecodeError:
        return None
    if usage.extraction_status != wire.TokenUsage.COMPLETE:
        return None
    details = usage.input_token_details
    return Usage(
        _count(usage.input_tokens.value) if usage.HasField("input_tokens") else None,
        _count(usage.output_tokens.value) if usage.HasField("output_tokens") else None,
        _count(details.cached_tokens.value) if details.HasField("cached_tokens") else None,
    )


def _untyped_usage(metadata: wire.Metadata) -> Usage | None:
    if _UNTYPED_USAGE not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[_UNTYPED_USAGE].fields
    counts = {
        name: _count(value.number_value)
        for name, value in fields.items()
        if value.WhichOneof("kind") == "number_value"
    }
    return Usage(counts.get("prompt_tokens"), counts.get("output_tokens"), counts.get("cached_tokens"))


def _count(number: float) -> int | None:
    """Return a whole number of tokens, or None for what is none."""
    return int(number) if 0 <= number <= _MOST_TOKENS and float(number).is_integer() else None


def ending(entry: wire.HttpAccessLogEntry) -> Ending:
    """Return why a response ended. Success cannot be told from a reset by the ext_proc stream."""
    flags, code = entry.common_properties.response_flags, entry.response.response_code.value
    if flags.downstream_connection_termination or flags.downstream_remote_reset or code == 0:
        return Ending.CLIENT_GONE
    if (
        flags.upstream_request_timeout
        or flags.stream_idle_timeout
        or flags.duration_timeout
        or flags.upstream_max_stream_duration_reached
    ):
        return Ending.TIMEOUT
    if (
        flags.upstream_remote_reset
        or flags.upstream_connection_failure
        or flags.upstream_connection_termination
        or flags.upstream_protocol_error
        or flags.local_reset
    ):
        return Ending.UPSTREAM_RESET
    if code >= 500 or code == 429:
        return Ending.UPSTREAM_ERROR
    return Ending.COMPLETE
