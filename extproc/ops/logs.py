"""Structured logs on standard error: one JSON object a line, or coloured text for a terminal."""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
from typing import Any, BinaryIO

import orjson
import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # variables hold prompts
)

_GATHER_S = 0.05


class GatheredLines:
    """Writes lines of an event loop together: a system call for each costs more than all the rest of a line.

    Whatever is a warning or worse is written at once, with what gathered before it; a process that is killed
    loses the last 50 ms of the others. For structlog, which calls the method named as the level.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lines: list[bytes] = []
        atexit.register(self.flush)

    def info(self, line: bytes) -> None:
        """Write a line soon."""
        self._lines.append(line)
        if len(self._lines) > 1:
            return  # the first of them has seen to it
        try:
            asyncio.get_running_loop().call_later(_GATHER_S, self.flush)
        except RuntimeError:  # no loop, nobody in a hurry
            self.flush()

    def error(self, line: bytes) -> None:
        """Write a line at once."""
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what has gathered."""
        lines, self._lines = self._lines, []
        if lines:
            self._out.write(b"\n".join(lines) + b"\n")
            self._out.flush()

    debug = info
    warning = critical = error


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
    lines = GatheredLines(sys.stderr.buffer)
    structlog.configure(
        processors=[
            *shared,
            *([_TRACEBACKS] if is_json else []),
            structlog.processors.JSONRenderer(serializer=orjson.dumps)
            if is_json
            else structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=(lambda *_: lines) if is_json else structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s", force=True)
    logging.getLogger("grpc").addFilter(_peer_went_first)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_peer_went_first)


def _peer_went_first(record: logging.LogRecord) -> bool:
    """Drop grpcio's complaint about writing to a stream that the peer has reset: a client that left."""
    return "ExecuteBatchError" not in record.getMessage()
