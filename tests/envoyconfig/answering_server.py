"""An ext_proc server that does what each request's body says: `answering_server.py HOST:PORT JOURNAL`.

A body is a JSON object: `until` names a file to wait for, `then` what to do:

    admit       go on, with the metadata of an admitted request (the default)
    pass        go on, with the ticket alone, as for a request that no pool manages
    bare        go on, without metadata
    refuse      an immediate response, with the headers in `headers`
    hand_over   abort UNAVAILABLE without an answer
    fail        raise
    say_nothing end the stream without an answer

What it sees goes to the journal, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import grpc
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from extproc.processor.access_log import read as read_access_log
from extproc.processor.proto import forebay_pb2 as wire

ADDRESS, JOURNAL = sys.argv[1], Path(sys.argv[2])


def note(event, **fields):
    with JOURNAL.open("a") as journal:  # one write a line: several servers share the file
        journal.write(json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n")


def go_on(**metadata):
    response = wire.ProcessingResponse(request_body=wire.BodyResponse())
    if metadata:
        response.dynamic_metadata.get_or_create_struct("forebay").update(metadata)
    return response.SerializeToString()


def refusal(headers):
    immediate = wire.ImmediateResponse(status=wire.HttpStatus(code=429), body=b"full", details="forebay_full")
    for name, value in headers.items():
        header = wire.HeaderValue(key=name, raw_value=value.encode())
        immediate.headers.set_headers.add(header=header, append_action=2)
    return wire.ProcessingResponse(immediate_response=immediate).SerializeToString()


async def process(requests, context):
    async for data in requests:
        request = wire.ProcessingRequest.FromString(data)
        kind = request.WhichOneof("request")
        if kind != "request_body":
            note(kind)
        elif reply := await answer(request, context):
            yield reply
        else:
            return
    note("stream_end")


async def answer(request, context):
    attributes = {k: v for s in request.attributes.values() for k, v in MessageToDict(s).items()}
    body = request.request_body.body
    do = json.loads(body) if body.startswith(b"{") else {}
    ticket = attributes["request.headers['x-forebay-ticket']"]
    note("request", ticket=ticket, attributes=attributes, size=len(body))
    if "until" in do:
        await file_exists(Path(do["until"]))
    match do.get("then", "admit"):
        case "admit":
            told = {"wait_ms": "12", "reserved_tokens": "345", "class": "interactive", "pool": "llama"}
            return go_on(ticket=ticket, **told)
        case "pass":
            return go_on(ticket=ticket)
        case "bare":
            return go_on()
        case "refuse":
            return refusal(do["headers"])
        case "hand_over":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "try another server")
        case "say_nothing":
            return None
    raise RuntimeError("as told")


async def file_exists(path):
    while not path.exists():  # noqa: ASYNC110 - the test that makes it is another process
        await asyncio.sleep(0.01)


async def access_log(requests, _context):
    async for data in requests:
        for entry in wire.StreamAccessLogsMessage.FromString(data).http_logs.log_entry:
            metadata = entry.common_properties.metadata.filter_metadata
            note(
                "access_log",
                status=entry.response.response_code.value,
                metadata=MessageToDict(metadata["forebay"]) if "forebay" in metadata else None,
            )
        for ended in read_access_log(data):
            note("ended", **asdict(ended))
    return b""


async def main():
    options = {
        "grpc.max_receive_message_length": 64 * 2**20,
        "grpc.http2.min_ping_interval_without_data_ms": 1000,
        "grpc.http2.max_ping_strikes": 0,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.so_reuseport": 0,
    }
    server = grpc.aio.server(options=list(options.items()))
    handlers = {
        "envoy.service.ext_proc.v3.ExternalProcessor": (
            {"Process": grpc.stream_stream_rpc_method_handler(process)}
        ),
        "envoy.service.accesslog.v3.AccessLogService": (
            {"StreamAccessLogs": grpc.stream_unary_rpc_method_handler(access_log)}
        ),
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, methods) for service, methods in handlers.items()]
    )
    servicer = health.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(ADDRESS)
    await server.start()
    note("started", port=port)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
