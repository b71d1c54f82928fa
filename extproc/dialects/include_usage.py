"""OpenAI's `stream_options.include_usage` for clients that did not ask, and its event kept from them.

A stream of OpenAI's chats and completions tells its usage only on request, in an event of its own, the last.
"""

from __future__ import annotations

import re

import orjson

from extproc.dialects.body import InferenceBody
from extproc.dialects.endpoints import Endpoint

_ENDPOINTS = frozenset({"chat_completions", "completions"})

_MOST_HELD_BYTES = 1 << 16
"""No usage event is as large; what is not an event by then is passed on."""

_ASKED = b'"stream_options":{"include_usage":true}'
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)", re.DOTALL)


def asking_for_usage(
    endpoint: Endpoint, asked: InferenceBody, body: bytes, content_encoding: str = ""
) -> bytes | None:
    """Return a request body that asks for usage, or None where there is nothing to ask for or no way to.

    Args:
        endpoint: where the body was sent.
        asked: what it asks for.
        body: itself; it is changed no more than needed, for a rewritten number might be another.
        content_encoding: of the body.
    """
    if endpoint.name not in _ENDPOINTS or not asked.is_streaming or asked.wants_usage:
        return None
    if content_encoding.strip().lower() not in ("", "identity"):
        return None
    if b'"stream_options"' not in body:
        start = body.index(b"{") + 1
        return b"%b%b,%b" % (body[:start], _ASKED, body[start:])
    fields = orjson.loads(body)
    options = fields.get("stream_options") or {}
    if options.get("include_usage") is not None:
        return None  # it said no
    return orjson.dumps({**fields, "stream_options": {**options, "include_usage": True}})


class UsageHider:
    """Takes the event that tells usage, and nothing else, out of a stream.

    An event that is not whole waits for its rest, which costs nothing: a client can do nothing with a part.
    """

    def __init__(self) -> None:
        self._held = b""

    def pass_on(self, chunk: bytes, *, is_last: bool) -> bytes:
        """Return what the client may see by now."""
        seen = self._held + chunk
        end = len(seen) if is_last else _end_of_events(seen)
        self._held = seen[end:]
        if len(self._held) > _MOST_HELD_BYTES:
            end, self._held = len(seen), b""
        whole = seen[:end]
        return _EVENT.sub(_unless_usage, whole) if _NO_CHOICES.search(whole) else whole


def _end_of_events(seen: bytes) -> int:
    return max(
        (seen.rfind(end) + len(end) for end in (b"\n\n", b"\r\n\r\n", b"\r\r") if end in seen), default=0
    )


def _unless_usage(event: re.Match[bytes]) -> bytes:
    text = event[0]
    return b"" if _NO_CHOICES.search(text) and _USAGE.search(text) else text
