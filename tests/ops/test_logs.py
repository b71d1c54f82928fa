"""The log of a process, read back from its standard error."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from functools import cache

import pytest

from extproc.ops.logs import GatheredLines, _peer_went_first

PROGRAM = """
import logging, structlog
from extproc.ops import logs
logs.configure({level!r}, {format!r})
log = structlog.get_logger()
log.debug("detail", pool="llama")
log.info("request", outcome="admitted", wait_ms=12)
prompt = "a secret" + " prompt"
try:
    raise ValueError("what went wrong")
except ValueError:
    log.exception("exchange failed")
logging.getLogger("grpc._cython.cygrpc").error("ExecuteBatchError: the peer went")
logging.getLogger("grpc._cython.cygrpc").error("something else")
"""


@cache
def run(level: str, log_format: str) -> list[str]:
    program = PROGRAM.format(level=level, format=log_format)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_event_is_one_json_object_on_a_line():
    lines = run("info", "json")
    request, failure = (json.loads(line) for line in lines if line.startswith("{"))
    assert request.pop("timestamp").endswith("Z")
    assert request == {"event": "request", "level": "info", "outcome": "admitted", "wait_ms": 12}
    assert failure["event"] == "exchange failed"
    assert failure["exception"][0]["exc_type"] == "ValueError"


def test_the_level_decides_what_is_written():
    assert [json.loads(line)["event"] for line in run("debug", "json") if line.startswith("{")] == [
        "detail",
        "request",
        "exchange failed",
    ]
    assert not any("request" in line for line in run("error", "json") if line.startswith("{"))


def test_the_console_form_is_for_people():
    text = "\n".join(run("info", "console"))
    assert "request" in text
    assert "Traceback" in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_does_not_show_what_was_in_the_variables(log_format):
    text = "\n".join(run("info", log_format))
    assert "what went wrong" in text
    assert "a secret prompt" not in text


def test_grpcs_complaint_of_a_peer_that_left_is_dropped_and_others_are_not():
    lines = run("info", "json")
    assert "something else" in lines
    assert not any("ExecuteBatchError" in line for line in lines)
    record = logging.LogRecord("grpc", logging.ERROR, "", 0, "other", (), None)
    assert _peer_went_first(record)


async def test_lines_gather_for_a_moment():
    out = io.BytesIO()
    lines = GatheredLines(out)
    lines.info(b"one")
    lines.debug(b"two")
    assert out.getvalue() == b""
    await asyncio.sleep(0.1)
    assert out.getvalue() == b"one\ntwo\n"


async def test_a_warning_is_written_at_once_and_in_its_place():
    out = io.BytesIO()
    lines = GatheredLines(out)
    lines.info(b"before")
    lines.warning(b"it")
    assert out.getvalue() == b"before\nit\n"


def test_lines_outside_of_a_loop_are_written_at_once():
    out = io.BytesIO()
    GatheredLines(out).info(b"one")
    assert out.getvalue() == b"one\n"


def test_the_last_lines_of_a_process_are_written():
    program = """
import asyncio, structlog
from extproc.ops import logs
async def main():
    logs.configure("info", "json")
    structlog.get_logger().info("last words")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=True)
    assert json.loads(done.stderr)["event"] == "last words"
