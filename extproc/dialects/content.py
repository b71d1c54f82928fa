"""From JSON content to the parts of a prompt.

Chat messages, Responses items and Anthropic blocks differ in shape but hardly in vocabulary: `text` is
text and `image_url` an image in all of them. So one walk by key reads them all; what it does not know
it passes over, as engines do with fields they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from extproc.dialects.data_uris import data_uris
from extproc.dialects.fields import JsonObject, wrong
from extproc.dialects.prompt import Media, MediaKind, Part, Section, Text, TokenIds, Turn, Unseen
from extproc.domain.errors import BadRequest

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_SYSTEM_ROLES = frozenset({"system", "developer"})

_MEDIA = {
    "image_url": MediaKind.IMAGE,
    "image_embeds": MediaKind.IMAGE,
    "input_audio": MediaKind.AUDIO,
    "audio_url": MediaKind.AUDIO,
    "video_url": MediaKind.VIDEO,
    "file": MediaKind.FILE,
    "file_data": MediaKind.FILE,
    "file_url": MediaKind.FILE,
    "file_id": MediaKind.FILE,
}
_SOURCE_KEYS = ("url", "data", "file_data", "file_url")


def add_text(
    parts: list[Part], section: Section, value: Any, param: str, *, data_uri: MediaKind = MediaKind.DATA
) -> None:
    """Add a string; data URIs in it become media of kind `data_uri`, for nobody should tokenise them."""
    if not isinstance(value, str):
        raise wrong(param, "a string", value)
    start = 0
    for uri_start, uri_end in data_uris(value):
        parts.append(Text(section, value[start:uri_start]))
        parts.append(Media(section, data_uri, value[uri_start:uri_end]))
        start = uri_end
    parts.append(Text(section, value[start:] if start else value))


def add_json(parts: list[Part], section: Section, value: Any, param: str) -> None:
    """Add a JSON value as chat templates print it; a string is JSON already."""
    parts.append(Text(section, value if isinstance(value, str) else _rendered(value, param)))


def add_content(parts: list[Part], section: Section, value: Any, param: str) -> None:
    """Add a message's content: a string, an object, or an array of either."""
    if isinstance(value, str):
        add_text(parts, section, value, param)
    elif isinstance(value, dict):
        _add_item(parts, section, value, param)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if not isinstance(item, str | dict):
                raise wrong(f"{param}[{index}]", "a string or an object", item)
            add_content(parts, section, item, f"{param}[{index}]")
    elif value is not None:
        raise wrong(param, "a string or an array", value)


def add_messages(parts: list[Part], messages: list[Any], param: str) -> None:
    """Add a conversation: each message with its turn."""
    for index, message in enumerate(messages):
        where = f"{param}[{index}]"
        if not isinstance(message, dict):
            raise wrong(where, "an object", message)
        role = message.get("role")
        if role is not None and not isinstance(role, str):
            raise wrong(f"{where}.role", "a string", role)
        section = Section.SYSTEM if role in _SYSTEM_ROLES else Section.MESSAGES
        parts.append(Turn(section))
        if role is not None and role not in _ROLES:  # templates print it; the usual ones are in the turn
            parts.append(Text(section, role))
        _add_item(parts, section, message, where)


def add_prompts(parts: list[Part], section: Section, value: Any, param: str) -> int:
    """Add a string, token ids or an array of either; return how many prompts they are."""
    if not isinstance(value, list):
        add_content(parts, section, value, param)
        return 1
    if _are_token_ids(value):
        parts.append(TokenIds(section, len(value)))
        return 1
    for index, item in enumerate(value):
        if isinstance(item, list) and _are_token_ids(item):
            parts.append(TokenIds(section, len(item)))
        else:
            add_content(parts, section, item, f"{param}[{index}]")
    return max(1, len(value))


def _are_token_ids(values: list[Any]) -> bool:
    return bool(values) and set(map(type, values)) == {int}


def _rendered(value: Any, param: str) -> str:
    """Return JSON spaced as Python prints it, which is what Hugging Face chat templates do.

    orjson writes it without spaces; put back after the fact it costs a tenth of the standard library's
    encoder. Compact JSON has a quarter fewer tokens (92 against 123 for one tool), so it matters. A
    string that itself contains quotes may get a space too many.

    Raises:
        BadRequest: nested deeper than 254 levels, orjson's limit.
    """
    try:
        compact = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise BadRequest(f"'{param}' is nested too deeply", param) from None
    return compact.replace('":', '": ').replace(',"', ', "').replace(",{", ", {")


def _add_item(parts: list[Part], section: Section, item: JsonObject, param: str) -> None:
    for key, value in item.items():
        if value is None:
            continue
        if (kind := _MEDIA.get(key)) is not None:
            _add_media(parts, section, kind, value, item)
        elif key == "source":
            _add_source(parts, section, value, item, param)
        elif (add := _BY_KEY.get(key)) is not None:
            add(parts, section, value, f"{param}.{key}")


def _add_media(parts: list[Part], section: Section, kind: MediaKind, value: Any, item: JsonObject) -> None:
    holder = value if isinstance(value, dict) else {"url": value}
    source = next((holder[key] for key in _SOURCE_KEYS if isinstance(holder.get(key), str)), None)
    detail = holder.get("detail") or item.get("detail")
    parts.append(Media(section, kind, source, detail if isinstance(detail, str) else None))


def _add_source(parts: list[Part], section: Section, value: Any, item: JsonObject, param: str) -> None:
    """Add Anthropic's `source`, which holds an image, a document, or a document's text."""
    if not isinstance(value, dict):
        return
    if value.get("type") == "text":
        add_text(parts, section, value.get("data"), f"{param}.source.data")
    elif value.get("type") == "content":
        add_content(parts, section, value.get("content"), f"{param}.source.content")
    else:
        kind = MediaKind.IMAGE if item.get("type") == "image" else MediaKind.FILE
        _add_media(parts, section, kind, value, item)


def _add_unseen(parts: list[Part], section: Section, _value: Any, _param: str) -> None:
    parts.append(Unseen(section))


_BY_KEY: dict[str, Callable[[list[Part], Section, Any, str], None]] = {
    "text": add_text,
    "refusal": add_text,
    "thinking": add_text,
    "reasoning_content": add_text,
    "name": add_text,
    "title": add_text,
    "code": add_text,
    "arguments": add_json,
    "input": add_json,
    "action": add_json,
    "content": add_content,
    "reasoning": add_content,
    "summary": add_content,
    "output": add_content,
    "tool_calls": add_content,
    "function_call": add_content,
    "function": add_content,
    "encrypted_content": _add_unseen,
    "audio": _add_unseen,  # an assistant's earlier spoken answer, by id
}
