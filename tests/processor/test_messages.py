"""Our bytes against Envoy's own message types, as `envoy-data-plane` generates them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envoy_data_plane.envoy.config.core.v3 import HeaderMap, HeaderValue, HeaderValueOptionHeaderAppendAction
from envoy_data_plane.envoy.service.ext_proc.v3 import (
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
)
from envoy_data_plane.google.protobuf import Struct, Value

from extproc.dialects import Dialect
from extproc.domain.errors import ProtocolViolation
from extproc.domain.outcome import Refusal, Shedding
from extproc.processor import messages
from extproc.processor.messages import NAMESPACE, Head, Message, Phase


def headers(**named: str) -> HttpHeaders:
    found = [HeaderValue(key=k.replace("_", "-"), raw_value=v.encode()) for k, v in named.items()]
    return HttpHeaders(headers=HeaderMap(headers=found))


def attributes(values: dict[str, str]) -> dict[str, Struct]:
    return {
        "envoy.filters.http.ext_proc": Struct(fields={k: Value(string_value=v) for k, v in values.items()})
    }


def test_request_headers_are_read_with_their_path():
    part = HttpHeaders(
        headers=HeaderMap(
            headers=[
                HeaderValue(key=":path", raw_value=b"/v1/completions?x=1"),
                HeaderValue(key="x-old", value="text"),
                HeaderValue(key="x-bytes", raw_value=b"caf\xe9"),
            ]
        ),
        end_of_stream=True,
    )
    message = messages.parse(bytes(ProcessingRequest(request_headers=part)))
    assert message == Message(
        Phase.REQUEST_HEADERS,
        Head(
            "/v1/completions?x=1",
            {":path": "/v1/completions?x=1", "x-old": "text", "x-bytes": "caf\u00e9"},
        ),
        end_of_stream=True,
    )


@pytest.mark.parametrize("is_last", [True, False])
def test_a_body_is_read_with_the_attributes_that_came_with_it(is_last):
    data = bytes(
        ProcessingRequest(
            request_body=HttpBody(body=b"{}", end_of_stream=is_last),
            attributes=attributes(
                {"request.path": "/v1/messages", "request.headers['x-forebay-ticket']": "t-1"}
            ),
            protocol_config=ProtocolConfiguration(),  # a field that we do not know is skipped
        )
    )
    head = Head("/v1/messages", {"x-forebay-ticket": "t-1"})
    assert messages.parse(data) == Message(Phase.REQUEST_BODY, head, b"{}", is_last)


def test_a_body_without_attributes_has_no_head():
    data = bytes(ProcessingRequest(request_body=HttpBody(body=b"{}", end_of_stream=True)))
    assert messages.parse(data) == Message(Phase.REQUEST_BODY, None, b"{}", end_of_stream=True)


@pytest.mark.parametrize(
    ("request_", "phase"),
    [
        (ProcessingRequest(response_headers=headers(x="y")), Phase.RESPONSE_HEADERS),
        (ProcessingRequest(response_body=HttpBody(body=b"x")), Phase.RESPONSE_BODY),
        (ProcessingRequest(request_trailers=HttpTrailers()), Phase.REQUEST_TRAILERS),
        (ProcessingRequest(response_trailers=HttpTrailers()), Phase.RESPONSE_TRAILERS),
    ],
    ids=lambda value: value.value if isinstance(value, Phase) else "",
)
def test_every_other_kind_is_recognised(request_, phase):
    assert messages.parse(bytes(request_)).phase is phase


@pytest.mark.parametrize("data", [b"", b"\x50\x01", b"\xff\xff\xff"], ids=["empty", "no kind", "no protobuf"])
def test_other_bytes_are_a_violation(data):
    with pytest.raises(ProtocolViolation):
        messages.parse(data)


@pytest.mark.parametrize("phase", Phase)
def test_a_plain_reply_is_of_the_phase_it_answers(phase):
    reply = ProcessingResponse.parse(messages.proceed(phase))
    assert _kind(reply) == phase.value
    assert reply.dynamic_metadata is None


def test_a_reply_carries_metadata_in_our_namespace():
    reply = ProcessingResponse.parse(
        messages.proceed(Phase.REQUEST_BODY, metadata={"ticket": "t-1", "wait_ms": "12"})
    )
    assert _kind(reply) == "request_body"
    namespace = reply.dynamic_metadata.fields[NAMESPACE].struct_value
    assert {k: v.string_value for k, v in namespace.fields.items()} == {"ticket": "t-1", "wait_ms": "12"}


def test_a_reply_writes_over_headers():
    reply = ProcessingResponse.parse(
        messages.proceed(Phase.RESPONSE_HEADERS, set_headers={"x-forebay-class": "batch"})
    )
    assert _mutation(reply.response_headers.response.header_mutation) == {"x-forebay-class": "batch"}


@pytest.mark.parametrize("refusal", Refusal)
def test_a_refusal_is_an_immediate_response_that_names_its_reason(refusal):
    shedding = Shedding(refusal, "No room.", param="messages", retry_after_s=3)
    reply = ProcessingResponse.parse(
        messages.refuse(shedding, Dialect.OPENAI, {"x-forebay-reason": refusal.value, "retry-after": "3"})
    )
    assert _kind(reply) == "immediate_response"
    immediate = reply.immediate_response
    assert int(immediate.status.code) == shedding.status
    assert immediate.details == f"forebay_{refusal.value}"
    assert json.loads(immediate.body)["error"]["code"] == refusal.value
    assert _mutation(immediate.headers) == {
        "content-type": "application/json",
        "x-forebay-reason": refusal.value,
        "retry-after": "3",
    }
    assert immediate.grpc_status is None


def test_replies_do_not_share_what_was_set_in_one():
    messages.proceed(Phase.REQUEST_BODY, metadata={"ticket": "t-1"})
    messages.proceed(Phase.RESPONSE_HEADERS, set_headers={"x": "y"})
    assert ProcessingResponse.parse(messages.proceed(Phase.REQUEST_BODY)).dynamic_metadata is None
    plain = ProcessingResponse.parse(messages.proceed(Phase.RESPONSE_HEADERS))
    assert plain.response_headers.response is None


def _kind(reply: ProcessingResponse) -> str:
    import betterproto2

    return betterproto2.which_one_of(reply, "response")[0]


def _mutation(mutation: Any) -> dict[str, str]:
    assert not mutation.remove_headers
    overwrite = HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    assert all(option.append_action == overwrite for option in mutation.set_headers)
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}
