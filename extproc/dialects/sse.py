"""Server-sent events out of chunks that are cut anywhere."""

from __future__ import annotations

MAX_EVENT_BYTES = 1 << 20
"""A larger event is passed over: no usage takes a thousandth of it, and nobody may fill our memory."""

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Gives the data of each event once the event is whole.

    Follows the HTML standard: lines end with CRLF, LF or CR, comments and other fields do not matter, several
    `data` lines are joined by a line feed. Unlike there, `finish` takes an event that lacks its blank line.

    Args:
        max_event_bytes: events with a longer line, or with more data, are left out.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._line: list[bytes] = []  # pieces of the line that has not ended
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._is_too_long = False
        self._is_first_line = True
        self._may_be_half_an_end = False  # the last byte was a CR, whose LF may be still to come

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end in this chunk."""
        if self._may_be_half_an_end and chunk:
            self._may_be_half_an_end = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._may_be_half_an_end = chunk.endswith(b"\r")
        events: list[bytes] = []
        for line in chunk.splitlines(keepends=True):
            text = line.rstrip(b"\r\n")
            if len(text) == len(line):
                self._hold(text)
            else:
                self._end_line(text, events)
        return events

    def finish(self) -> list[bytes]:
        """Return the data of the event that the end of the stream ended, if there is one."""
        events: list[bytes] = []
        if self._line_bytes:
            self._end_line(b"", events)
        self._end_event(events)
        return events

    def _hold(self, piece: bytes) -> None:
        self._line_bytes += len(piece)
        if self._line_bytes > self._most:
            self._line.clear()
        else:
            self._line.append(piece)

    def _end_line(self, rest: bytes, events: list[bytes]) -> None:
        if self._line_bytes:
            self._hold(rest)
            length, line = self._line_bytes, b"".join(self._line)
            self._line.clear()
            self._line_bytes = 0
        else:
            length, line = len(rest), rest
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if length > self._most:
            self._skip_event()
        elif line.startswith(b"data:"):
            self._add(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line:
            self._end_event(events)

    def _add(self, data: bytes) -> None:
        self._data_bytes += len(data) + 1  # empty ones fill memory, too
        if self._is_too_long or self._data_bytes > self._most:
            self._skip_event()
        else:
            self._data.append(data)

    def _skip_event(self) -> None:
        self._is_too_long = True
        self._data.clear()

    def _end_event(self, events: list[bytes]) -> None:
        if self._data:
            events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data.clear()
        self._data_bytes = 0
        self._is_too_long = False
