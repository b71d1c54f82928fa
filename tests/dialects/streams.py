"""Event streams made up at random, and what an attentive reader would find in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from extproc.domain.tokens import Usage

RECORDED = Path(__file__).parents[1] / "simulator" / "fixtures"
"""Of vLLM 0.32."""

_TEXTS = (
    "a",
    " word",
    "é",
    "雪",
    "🚀",
    '"usage": {"x": 1}',
    "data: [DONE]",
    '{"generated_text": "',
    "\n\n",
    "\r\n",
)


@dataclass
class Told:
    """A stream and what it tells."""

    body: bytes
    usage: Usage | None
    events: int
    is_complete: bool


@dataclass
class _Draft:
    data: list[Any] = field(default_factory=list)
    usage: Usage | None = None
    events: int = 0
    is_complete: bool = False


def made_up(rng: Random) -> Told:
    """Return a stream of any dialect, written in any way the standard allows."""
    draft = rng.choice((_chat, _chat, _completion, _responses, _messages, _tgi))(rng)
    return Told(_written(rng, draft.data), draft.usage, draft.events, draft.is_complete)


def cut(rng: Random, body: bytes) -> list[bytes]:
    """Return a body in pieces: some, or single bytes; some of them empty."""
    if rng.random() < 0.1:
        return [body[i : i + 1] for i in range(len(body))]
    places = sorted(rng.randint(0, len(body)) for _ in range(rng.randint(0, 12)))
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def _texts(rng: Random) -> list[str]:
    return [rng.choice(_TEXTS) for _ in range(rng.randint(0, 8))]


def _openai_usage(prompt: int, output: int, cached: int | None) -> dict[str, Any]:
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": details,
    }


def _openai(rng: Random, chunks: list[dict[str, Any]], contents: int) -> _Draft:
    prompt, cached = rng.randint(0, 5000), rng.choice((None, rng.randint(0, 99)))
    output, form = len(chunks), rng.choice(("none", "last", "nulls", "continuous", "split"))
    draft = _Draft(list(chunks), events=contents)
    if form == "nulls":
        draft.data = [{**chunk, "usage": None} for chunk in chunks]
    if form == "continuous":
        draft.data = [{**chunk, "usage": _openai_usage(prompt, n, cached)} for n, chunk in enumerate(chunks)]
    if form == "split":
        draft.data.append({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": None}})
        draft.data.append({"choices": [], "usage": {"completion_tokens": output}})
        draft.usage = Usage(prompt, output)
    elif form != "none":
        draft.data.append({"choices": [], "usage": _openai_usage(prompt, output, cached)})
        draft.usage = Usage(prompt, output, cached)
    if rng.random() < 0.9:
        draft.data.append("[DONE]")
        draft.is_complete = True
    return draft


def _chat(rng: Random) -> _Draft:
    texts = _texts(rng)
    head = {"object": "chat.completion.chunk", "choices": [{"delta": {"role": "assistant", "content": ""}}]}
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    tail = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    return _openai(rng, [head, *chunks, tail], len(texts))


def _completion(rng: Random) -> _Draft:
    texts = _texts(rng)
    return _openai(rng, [{"choices": [{"text": text, "logprobs": None}]} for text in texts], len(texts))


def _responses(rng: Random) -> _Draft:
    texts, usage = _texts(rng), Usage(rng.randint(0, 99), rng.randint(0, 99), rng.randint(0, 99))
    deltas = [{"type": "response.output_text.delta", "delta": text} for text in texts]
    draft = _Draft([{"type": "response.created", "response": {"usage": None}}, *deltas], events=len(texts))
    if rng.random() < 0.9:
        told = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.output_tokens,
        }
        draft.data.append({"type": "response.completed", "response": {"usage": told}})
        draft.usage, draft.is_complete = usage, True
    return draft


def _messages(rng: Random) -> _Draft:
    texts = _texts(rng)
    plain, read, created = rng.randint(0, 999), rng.choice((None, 0, 7)), rng.choice((None, 0, 11))
    start = {"input_tokens": plain, "output_tokens": 1}
    start |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": created}
    draft = _Draft([{"type": "message_start", "message": {"usage": start}}], events=len(texts))
    draft.usage = Usage(plain + (read or 0) + (created or 0), 1, read)
    draft.data += [{"type": "ping"}, {"type": "content_block_start", "content_block": {"text": ""}}]
    draft.data += [{"type": "content_block_delta", "delta": {"text": text}} for text in texts]
    if rng.random() < 0.9:
        draft.data.append({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}})
        draft.data.append({"type": "message_stop"})
        draft.usage = Usage(draft.usage.prompt_tokens, 40, read)
        draft.is_complete = True
    return draft


def _tgi(rng: Random) -> _Draft:
    texts = [text for text in _texts(rng) if text]
    draft = _Draft(events=len(texts))
    draft.data = [{"token": {"text": text}, "generated_text": None, "details": None} for text in texts]
    if texts and rng.random() < 0.9:
        draft.data[-1]["generated_text"] = "".join(texts)
        draft.is_complete = True
        if rng.random() < 0.8:
            draft.data[-1]["details"] = {"generated_tokens": len(texts), "input_length": 12}
            draft.usage = Usage(12, len(texts))
    return draft


def _written(rng: Random, events: list[Any]) -> bytes:
    end = rng.choice(("\n", "\r\n", "\r"))
    lines: list[str] = []
    for event in events:
        if rng.random() < 0.2:
            lines.append(rng.choice((": a comment", ":", "id: 7", "retry: 5", "data", "unknown: field")))
            lines.append("")
        if rng.random() < 0.3:
            lines.append("event: something")
        space = rng.choice(("", " "))
        lines += [f"data:{space}{line}" for line in _document(rng, event).split("\n")]
        lines.append("")
    is_last_line_missing = lines and rng.random() < 0.1
    text = end.join(lines[:-1] if is_last_line_missing else [*lines, ""])
    return (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + text.encode()


def _document(rng: Random, event: Any) -> str:
    if isinstance(event, str):
        return event
    separators = rng.choice(((",", ":"), (", ", ": ")))
    indent = 1 if rng.random() < 0.1 else None  # over several lines of `data`
    return json.dumps(event, ensure_ascii=rng.random() < 0.5, separators=separators, indent=indent)
