"""Server-sent events."""

from __future__ import annotations

from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"

HOLE = "\ue000"  # a private-use character, which no model name and no word of ours contains


def event(data: Any, name: str | None = None) -> bytes:
    """Return one event with a JSON payload, named or not."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return b"%sdata: %s\n\n" % (head, orjson.dumps(data))


class Template:
    """An event with a `HOLE` for text: encoded once an answer instead of once a token."""

    def __init__(self, encoded: bytes) -> None:
        self._parts = encoded.split(HOLE.encode())

    def fill(self, text: str) -> bytes:
        """Return the event with `text` in its hole; the text needs no escaping in JSON."""
        return text.encode().join(self._parts)
