"""One response that is read as it passes, to learn what it took."""

from __future__ import annotations

import asyncio

from extproc.dialects.include_usage import UsageHider
from extproc.dialects.usage import UsageReader
from extproc.domain.outcome import Ending
from extproc.domain.response import Ended
from extproc.domain.tokens import Usage
from extproc.processor.gate import Passage
from extproc.processor.messages import Message

_EVENT_STREAM = "text/event-stream"


class Reading:
    """Reads one response; made when its request is let go on.

    Args:
        passage: its request.
    """

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._began_s = asyncio.get_running_loop().time()
        self._first_byte_s: float | None = None
        self._status = 0
        self._is_streaming = False
        self._is_over = False
        self._body_bytes = 0
        self._reader: UsageReader | None = None
        self._hider: UsageHider | None = None

    def begin(self, message: Message) -> bool:
        """Take note of the headers; return whether the body is to be read.

        Errors, what is compressed, and what is neither JSON nor an event stream tell no usage.
        """
        headers = message.head.headers if message.head else {}
        status = headers.get(":status", "")
        self._status = int(status) if status.isascii() and status.isdigit() else 0
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._is_streaming = kind == _EVENT_STREAM
        is_plain = headers.get("content-encoding", "identity").strip().lower() == "identity"
        is_readable = is_plain and (self._is_streaming or kind == "application/json")
        if message.end_of_stream or not is_readable or not 200 <= self._status < 300:
            return False
        self._reader = UsageReader(is_streaming=self._is_streaming)
        if self._is_streaming and self._passage.body is not None:
            self._hider = UsageHider()
        return True

    def read(self, chunk: bytes, *, is_last: bool) -> bytes:
        """Read a chunk of the body; return what the client gets instead of it, mostly the same."""
        if self._reader is None:
            return chunk
        if self._first_byte_s is None and chunk:
            self._first_byte_s = self._elapsed_s()
        self._body_bytes += len(chunk)
        self._is_over = self._is_over or is_last
        self._reader.feed(chunk)
        return chunk if self._hider is None else self._hider.pass_on(chunk, is_last=is_last)

    def end(self) -> Ended | None:
        """Return how the response came out, or None where too little was seen of it to say."""
        is_failed = self._status >= 500 or self._status == 429
        if not is_failed and not self._body_bytes:
            return None
        passage = self._passage
        return Ended(
            passage.pool.name,
            passage.request.flow.priority_class.name,
            passage.request.id,
            Ending.UPSTREAM_ERROR if is_failed else self._ending(),
            passage.foresight,
            usage=self._usage(),
            body_bytes=self._body_bytes,
            duration_s=self._elapsed_s(),
            first_byte_s=self._first_byte_s,
            is_streaming=self._is_streaming,
        )

    def _ending(self) -> Ending:
        """Return why it ended. Of one that was cut off nobody tells us who did: engine, client or a timer."""
        return Ending.COMPLETE if self._is_over else Ending.UPSTREAM_RESET

    def _usage(self) -> Usage | None:
        reader = self._reader
        if reader is None:
            return None
        if self._is_over:
            reader.finish()
        if reader.usage is None and reader.events:
            return Usage(output_tokens=reader.events, is_guess=True)  # mostly one token each
        return reader.usage

    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s
