"""Data URIs amid text: megabytes of base64 that nobody should tokenise."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = ";base64,"
_SCHEME = "data:"
_HEAD_CHARS = 128  # from `data:` to the mark: a media type and its parameters
_LEAST_CHARS = 256  # less is not worth cutting out
_MOST_URIS = 64  # per string; what follows is text, whose counting is capped anyway
_STRIDE = 1 << 16  # `re` keeps the interpreter lock: 0.2 ms a stride, so that other threads get their turn
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*+={0,2}+")


def data_uris(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the long base64 data URIs in a text, in order.

    Searches for the mark and looks around it, because a pattern for the whole URI takes quadratic time
    on `data:;data:;…`.
    """
    found, after = 0, 0
    while found < _MOST_URIS and (mark := text.find(_MARK, after)) >= 0:
        found += 1
        start = text.rfind(_SCHEME, max(after, mark - _HEAD_CHARS), mark)
        end = _end_of_base64(text, mark + len(_MARK))
        after = end
        if start >= 0 and end - mark >= _LEAST_CHARS:
            yield start, end


def _end_of_base64(text: str, start: int) -> int:
    while True:
        found = _BASE64.match(text, start, start + _STRIDE)
        end = found.end() if found else start
        if end < start + _STRIDE:
            return end
        start = end
