"""Token counts of texts seen before: a chat sends its history again with every turn."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import NamedTuple


class Count(NamedTuple):
    """Tokens of a text; not exact where some were extrapolated."""

    tokens: int
    is_exact: bool


class CountCache:
    """Remembers the counts of the most recently used texts.

    It holds digests, no text, so that an entry has the same size (about 250 bytes) whatever it stands
    for, and nobody's prompt outlives its request. Safe to use from several threads.
    """

    def __init__(self, entries: int) -> None:
        self._most = entries
        self._counts: OrderedDict[bytes, Count] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._counts)

    @staticmethod
    def key(encoding: str, text: str) -> bytes:
        """Return the digest a text is known by under an encoding (0.5 us a kilobyte)."""
        return hashlib.sha256(text.encode(), usedforsecurity=False).digest()[:16] + encoding.encode()

    def get(self, key: bytes) -> Count | None:
        """Return what is known of a text and make it the most recent, or None."""
        with self._lock:
            count = self._counts.get(key)
            if count is None:
                self.misses += 1
                return None
            self.hits += 1
            self._counts.move_to_end(key)
            return count

    def put(self, key: bytes, count: Count) -> None:
        """Remember a count, and forget the least recent one when full."""
        with self._lock:
            self._counts[key] = count
            self._counts.move_to_end(key)
            if len(self._counts) > self._most:
                self._counts.popitem(last=False)
