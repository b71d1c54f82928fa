"""What a response took, read from its body as it passes.

The body's own form decides, not the path it was asked for on: the dialects name their counts so differently
that they cannot be mistaken. Reading is cheap because hardly any event is parsed: one that tells of usage has
an object named so, and a regular expression finds that in a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from extproc.dialects.sse import EventSplitter
from extproc.domain.tokens import Usage

MAX_JSON_BYTES = 8 << 20
"""A larger answer in one piece is not read: parsing it would stop all others for 30 ms."""

_TELLS = re.compile(rb'"(?:usage|details)"\s*:\s*\{')
_ENDS = re.compile(rb'"type"\s*:\s*"(?:message_stop|response\.(?:completed|incomplete|failed))"')
_ENDS_TGI = re.compile(rb'"generated_text"\s*:\s*"')
_CONTENT = re.compile(
    rb'"choices"\s*:\s*\[\s*\{'  # OpenAI's chats and completions
    rb'|"type"\s*:\s*"content_block_delta"'  # Anthropic's
    rb'|"delta"\s*:\s*"'  # OpenAI's responses
    rb'|"token"\s*:\s*\{'  # TGI's
)
_EMPTY = re.compile(rb'"(?:content|text|delta)"\s*:\s*(?:""|\{\s*\})')
"""Of an event that opens an answer (a role) or closes it (a reason), and holds no token."""

_PROMPT = ("prompt_tokens", "input_tokens", "input_length")
_OUTPUT = ("completion_tokens", "output_tokens", "generated_tokens")
_CACHED = ("cached_tokens", "cache_read_input_tokens")
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's `input_tokens` are without these; all others count cached tokens among the prompt's."""

_MOST_TOKENS = 1 << 40
"""More than any response takes: an engine that reports more reports nonsense."""

_COUNTS = (*_PROMPT, *_OUTPUT, *_BESIDE_INPUT, "total_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


class UsageReader:
    """Reads the usage in one response.

    Args:
        is_streaming: the body is an event stream; otherwise one JSON document.
        max_json_bytes: larger documents are not read.

    Attributes:
        events: events of a stream that hold content. Mostly one token each, which is the next best thing
            where nothing is reported.
        is_complete: the stream came to the end that its dialect has, or the document was whole.
    """

    def __init__(self, *, is_streaming: bool, max_json_bytes: int = MAX_JSON_BYTES) -> None:
        self.events = 0
        self.is_complete = False
        self._counts: dict[str, int] = {}
        self._splitter = EventSplitter() if is_streaming else None
        self._most = max_json_bytes
        self._document: list[bytes] = []
        self._document_bytes = 0

    @property
    def usage(self) -> Usage | None:
        """What has been reported so far; None where nothing has."""
        counts = self._counts
        if not counts:
            return None
        prompt, output = _first(counts, _PROMPT), _first(counts, _OUTPUT)
        if prompt is None and output is None:
            prompt = counts.get("total_tokens")  # of a rerank
        elif prompt is not None and "prompt_tokens" not in counts:
            prompt += sum(counts.get(name, 0) for name in _BESIDE_INPUT)
        return Usage(prompt, output, _first(counts, _CACHED))

    def feed(self, chunk: bytes) -> None:
        """Read on; a chunk may be cut anywhere."""
        if self._splitter is not None:
            for event in self._splitter.feed(chunk):
                self._read_event(event)
            return
        self._document_bytes += len(chunk)
        if self._document_bytes > self._most:
            self._document.clear()
        else:
            self._document.append(chunk)

    def finish(self) -> None:
        """Take note that the body came to its end. One that was cut off is not finished."""
        if self._splitter is not None:
            for event in self._splitter.finish():
                self._read_event(event)
            return
        document = b"".join(self._document)
        self._document.clear()
        answer = _parsed(document)
        if isinstance(answer, dict | list):
            self.is_complete = True
            self._counts = _sum(_counts(item) for item in (answer if isinstance(answer, list) else [answer]))

    def _read_event(self, event: bytes) -> None:
        if _CONTENT.search(event):
            self.events += not _EMPTY.search(event)
            if b'"generated_text"' in event and _ENDS_TGI.search(event):
                self.is_complete = True
        elif event == b"[DONE]" or _ENDS.search(event):
            self.is_complete = True
        if _TELLS.search(event):
            self._counts |= _counts(_parsed(event))


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _counts(answer: Any) -> dict[str, int]:
    """Return the counts of one answer or event, named as on the wire."""
    if not isinstance(answer, dict):
        return {}
    found: dict[str, int] = {}
    for holder in (answer.get("message"), answer.get("response"), answer):  # Anthropic's, OpenAI's
        if isinstance(holder, dict) and isinstance(usage := holder.get("usage"), dict):
            found |= _whole(usage, _COUNTS)
            for name in _DETAILS:
                if isinstance(details := usage.get(name), dict):
                    found |= _whole(details, ("cached_tokens",))
    return found | _tgi_counts(answer.get("details"))


def _tgi_counts(details: Any) -> dict[str, int]:
    if not isinstance(details, dict):
        return {}
    found = _whole(details, ("generated_tokens", "input_length"))
    prefill, others = details.get("prefill"), details.get("best_of_sequences")
    if isinstance(prefill, list) and prefill:  # it is empty unless it was asked for
        found["input_length"] = len(prefill)
    if isinstance(others, list) and "generated_tokens" in found:
        found["generated_tokens"] += sum(
            _whole(other, ("generated_tokens",)).get("generated_tokens", 0)
            for other in others
            if isinstance(other, dict)
        )
    return found


def _whole(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    """Return those fields that are counts: whole numbers, not negative, not `true`."""
    return {
        name: value for name in names if type(value := fields.get(name)) is int and 0 <= value <= _MOST_TOKENS
    }


def _sum(parts: Iterator[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _first(counts: dict[str, int], names: tuple[str, ...]) -> int | None:
    return next((counts[name] for name in names if name in counts), None)
