"""Structured logs on standard error: one JSON object a line, or coloured text for a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # variables hold prompts
)


def configure(level: str, log_format: str) -> None:
    """Set up logging for the process.

    Args:
        level: debug, info, warning or error.
        log_format: json or console.
    """
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    is_json = log_format == "json"
    structlog.configure(
        processors=[
            *shared,
            *([_TRACEBACKS] if is_json else []),
            structlog.processors.JSONRenderer(serializer=orjson.dumps)
            if is_json
            else structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer)
        if is_json
        else structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s", force=True)
    logging.getLogger("grpc").addFilter(_peer_went_first)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_peer_went_first)


def _peer_went_first(record: logging.LogRecord) -> bool:
    """Drop grpcio's complaint about writing to a stream that the peer has reset: a client that left."""
    return "ExecuteBatchError" not in record.getMessage()
