"""The wire: Envoy's bytes to values and back. Nothing outside this room sees a protobuf class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.message import DecodeError

from extproc.dialects import Dialect, error_body
from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Shedding
from extproc.processor.proto import forebay_pb2 as wire

NAMESPACE = "forebay"
"""Namespace of the dynamic metadata that we set; Envoy's `header_mutation` and access log read it."""


class Phase(StrEnum):
    """Which part of the HTTP exchange a message is about; the values are the wire's field names."""

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a request or a response beside its body.

    Attributes:
        path: path and query; a response has none.
        headers: by lower-case name; only those that Envoy was asked to tell where headers are not sent.
    """

    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of Envoy's.

    Attributes:
        phase: what it is about.
        head: path and headers, where the message carries any: headers of either direction, or attributes.
        body: for the body phases.
        end_of_stream: nothing follows in this direction.
    """

    phase: Phase
    head: Head | None = None
    body: bytes = b""
    end_of_stream: bool = False


def parse(data: bytes) -> Message:
    """Decode a ProcessingRequest.

    Raises:
        ProtocolViolation: the bytes are none, or of a kind that is not known here.
    """
    try:
        request = wire.ProcessingRequest.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation(f"not a ProcessingRequest ({len(data)} bytes)") from error
    name = request.WhichOneof("request")
    if name is None:
        raise ProtocolViolation("a ProcessingRequest of unknown kind")
    phase = Phase(name)
    part = getattr(request, name)
    if phase in (Phase.REQUEST_HEADERS, Phase.RESPONSE_HEADERS):
        return Message(phase, _head_from_headers(part), end_of_stream=part.end_of_stream)
    if phase in (Phase.REQUEST_BODY, Phase.RESPONSE_BODY):
        return Message(phase, _head_from_attributes(request), part.body, part.end_of_stream)
    return Message(phase)


def _head_from_headers(headers: wire.HttpHeaders) -> Head:
    found = {h.key: h.value or h.raw_value.decode("latin-1") for h in headers.headers.headers}
    return Head(found.get(":path", ""), found)


def _head_from_attributes(request: wire.ProcessingRequest) -> Head | None:
    """Read `request.path` and `request.headers['name']`, whatever the filter is called."""
    if not request.attributes:
        return None
    path, headers = "", {}
    for struct in request.attributes.values():
        for name, value in struct.fields.items():
            if name == "request.path":
                path = value.string_value
            elif name.startswith("request.headers['"):
                headers[name[17:-2]] = value.string_value
    return Head(path, headers)


def proceed(
    phase: Phase,
    *,
    metadata: Mapping[str, str] | None = None,
    set_headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    reads_response: bool = False,
) -> bytes:
    """Encode the reply that lets a phase go on.

    Args:
        phase: the phase of the message that is answered.
        metadata: dynamic metadata to set in `NAMESPACE`.
        set_headers: headers to write over, in the direction of the phase.
        body: takes the place of the body that is answered.
        reads_response: ask for the response's body, chunk by chunk. Only in the answer to its headers.
    """
    if metadata is None and set_headers is None and body is None and not reads_response:
        return _PLAIN[phase]
    response = wire.ProcessingResponse.FromString(_PLAIN[phase])
    if metadata:
        fields = response.dynamic_metadata.fields[NAMESPACE].struct_value.fields
        for name, value in metadata.items():
            fields[name].string_value = value
    if set_headers:
        _set(getattr(response, phase).response.header_mutation, set_headers)
    if body is not None:
        common = getattr(response, phase).response
        common.body_mutation.body = body
        if phase is Phase.REQUEST_BODY:  # Envoy refuses a body that is not as long as its header says
            _set(common.header_mutation, {"content-length": str(len(body))})
    if reads_response:
        response.mode_override.CopyFrom(_READS_RESPONSE)
    return response.SerializeToString()


def refuse(shedding: Shedding, dialect: Dialect, set_headers: Mapping[str, str]) -> bytes:
    """Encode an immediate response in the caller's dialect."""
    immediate = wire.ImmediateResponse(
        status=wire.HttpStatus(code=shedding.status),
        body=error_body(
            dialect,
            status=shedding.status,
            message=shedding.message,
            param=shedding.param,
            code=shedding.refusal.value,
        ),
        details=f"forebay_{shedding.refusal.value}",
    )
    _set(immediate.headers, {"content-type": "application/json", **set_headers})
    return wire.ProcessingResponse(immediate_response=immediate).SerializeToString()


def _set(mutation: wire.HeaderMutation, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        mutation.set_headers.add(
            header=wire.HeaderValue(key=name, raw_value=value.encode()),
            append_action=wire.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )


def _plain(phase: Phase) -> bytes:
    response = wire.ProcessingResponse()
    getattr(response, phase).SetInParent()
    return response.SerializeToString()


_READS_RESPONSE = wire.ProcessingMode(
    request_body_mode=wire.ProcessingMode.BUFFERED,  # as it is: what an override leaves out is off
    response_body_mode=wire.ProcessingMode.STREAMED,
    response_trailer_mode=wire.ProcessingMode.SEND,
)
_PLAIN = {phase: _plain(phase) for phase in Phase}
