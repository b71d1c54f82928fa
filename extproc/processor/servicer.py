"""gRPC: Envoy's paths on our handlers, as raw bytes. Only this module knows grpcio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import structlog

from extproc.admission.service import HandedOver
from extproc.domain.errors import ProtocolViolation
from extproc.domain.response import Ended
from extproc.processor import access_log
from extproc.processor.exchange import Exchange
from extproc.processor.gate import Gate
from extproc.processor.record import ExchangeObserver

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"

_log = structlog.get_logger()


class _Stream:
    """A `Transport` on a gRPC stream; knows whether Envoy is owed an answer."""

    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context = context
        self.owes_answer = False

    async def receive(self) -> bytes | None:
        data: bytes | grpc.aio.EOF = await self._context.read()
        if data is grpc.aio.EOF:
            return None
        self.owes_answer = True
        return data

    async def send(self, data: bytes) -> None:
        await self._context.write(data)
        self.owes_answer = False


class Processor:
    """The external processor. Every way out of `process` answers or aborts.

    A handler that returned without an answer would let the request through: Envoy takes a clean end of the
    stream for consent.
    """

    def __init__(self, gate: Gate, observer: ExchangeObserver) -> None:
        self._gate = gate
        self._observer = observer

    async def process(self, _requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """Serve one ext_proc stream."""
        stream = _Stream(context)
        try:
            await Exchange(self._gate, stream, self._observer).run()
        except HandedOver:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "try another server")
        except ProtocolViolation as error:
            _log.error("protocol violation", error=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unexpected message")
        except Exception:  # noqa: BLE001 - the stream's top: whatever it was, the request must not pass for it
            _log.exception("exchange failed")
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        if stream.owes_answer:
            _log.error("exchange ended without an answer")
            await context.abort(grpc.StatusCode.INTERNAL, "no answer")


class AccessLog:
    """Receives Envoy's access log."""

    def __init__(self, on_ended: Callable[[Ended], None]) -> None:
        self._on_ended = on_ended

    async def stream(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        """Read one stream of entries to its end."""
        async for data in requests:
            try:
                for ended in access_log.read(data):
                    self._on_ended(ended)
            except ProtocolViolation as error:
                _log.error("access log unreadable", error=str(error))
        return b""


def handlers(processor: Processor, access_log: AccessLog) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers to add to a `grpc.aio` server."""
    return (
        grpc.method_handlers_generic_handler(
            EXT_PROC, {"Process": grpc.stream_stream_rpc_method_handler(processor.process)}
        ),
        grpc.method_handlers_generic_handler(
            ACCESS_LOG, {"StreamAccessLogs": grpc.stream_unary_rpc_method_handler(access_log.stream)}
        ),
    )
