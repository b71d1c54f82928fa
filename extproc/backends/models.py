"""What an engine says of the models it serves: OpenAI's `/v1/models`, with what vLLM and SGLang add to it."""

from __future__ import annotations

from typing import Any

import orjson

_MOST_TOKENS = 2**31


def context_tokens(page: bytes) -> int | None:
    """Return the context length of an engine in tokens, or None when it does not say.

    An engine has one, `max_model_len`, and says it of its base model; adapters that it lists beside say
    nothing. Of a page that says several, as a proxy's may, the longest counts: the context only ever lowers
    an estimate, and one that is too short would book too little.
    """
    try:
        listed = orjson.loads(page)["data"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    lengths = [_length(model) for model in listed] if isinstance(listed, list) else []
    return max(filter(None, lengths), default=None)


def _length(model: Any) -> int | None:
    length = model.get("max_model_len") if isinstance(model, dict) else None
    return length if type(length) is int and 0 < length <= _MOST_TOKENS else None
