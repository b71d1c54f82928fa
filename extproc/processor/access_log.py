"""How responses ended, from Envoy's gRPC access log.

It teaches and counts; it never releases: it may be late, land on another replica, or be lost.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended
from extproc.processor.messages import NAMESPACE
from extproc.processor.proto import forebay_pb2 as wire


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
    namespaces = entry.common_properties.metadata.filter_metadata
    if NAMESPACE not in namespaces:
        return None
    fields = namespaces[NAMESPACE].fields
    if "pool" not in fields:
        return None
    return Ended(
        fields["pool"].string_value,
        fields["class"].string_value,
        fields["ticket"].string_value,
        ending(entry),
    )


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
