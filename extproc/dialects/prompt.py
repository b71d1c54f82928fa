"""The prompt as ordered parts: what the engine will see, before anybody counts it.

Parts refer to the strings of the parsed body; nothing is copied. They are named tuples because a body
of 2 KB makes a dozen of them, and a frozen dataclass costs twice as much to build.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Section(StrEnum):
    """Where a part of the prompt comes from, as `forebay estimate` reports it."""

    SYSTEM = "system"
    MESSAGES = "messages"
    TOOLS = "tools"
    RESPONSE_FORMAT = "response_format"
    PROMPT = "prompt"
    DOCUMENTS = "documents"


class MediaKind(StrEnum):
    """What a media part is; each kind has its own rule of tokens."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    DATA = "data"  # a data URI amid text, which the engine will read as text


class Text(NamedTuple):
    """Text that the engine will tokenise, `times` over (a query is read again with every document)."""

    section: Section
    text: str
    times: int = 1


class TokenIds(NamedTuple):
    """Tokens the client made itself."""

    section: Section
    tokens: int
    times: int = 1


class Turn(NamedTuple):
    """The start of a message: the chat template frames it with a few tokens of its own."""

    section: Section


class Media(NamedTuple):
    """Something that is not text.

    Attributes:
        source: data URI, bare base64 or URL as the client wrote it; None for a reference by id.
        detail: OpenAI's level of detail for images.
    """

    section: Section
    kind: MediaKind
    source: str | None
    detail: str | None = None
    times: int = 1


class Unseen(NamedTuple):
    """Something the engine has and the body only names, such as an earlier response."""

    section: Section


Part = Text | TokenIds | Turn | Media | Unseen


def repeated(parts: list[Part], times: int) -> list[Part]:
    """Return the parts as the engine sees them when it reads them `times` over."""
    return [part if isinstance(part, Turn | Unseen) else part._replace(times=times) for part in parts]
