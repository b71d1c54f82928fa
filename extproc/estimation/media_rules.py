"""Tokens of images, audio, video and files, by rule: none of them is decoded, let alone tokenised."""

from __future__ import annotations

import math
import struct
from base64 import b64decode

from extproc.dialects import Media, MediaKind
from extproc.estimation.image_size import HEAD_BYTES, image_size
from extproc.estimation.settings import MediaSettings

_TILE_PX = 512
_LONGEST_PX = 2_048
_SHORTEST_PX = 768
_WAV_HEAD_BYTES = 32


def media_tokens(media: Media, rules: MediaSettings) -> int:
    """Return the tokens of one medium; at least 1."""
    if media.kind is MediaKind.IMAGE:
        return _image_tokens(media, rules)
    if media.kind is MediaKind.AUDIO:
        return math.ceil(_audio_s(media.source, rules) * rules.audio_tokens_per_s)
    if media.kind is MediaKind.VIDEO:
        held = _file_bytes(media.source)
        seconds = rules.unseen_media_s if held is None else held / rules.video_bytes_per_s
        return math.ceil(seconds * rules.video_tokens_per_s) or 1
    if media.kind is MediaKind.FILE:
        held = _file_bytes(media.source)
        return (
            rules.file_default_tokens if held is None else math.ceil(held / rules.file_bytes_per_token) or 1
        )
    return math.ceil(len(media.source or "") / rules.data_bytes_per_token) or 1


def _image_tokens(media: Media, rules: MediaSettings) -> int:
    """Apply OpenAI's rule: fit into 2048 x 2048, shorten the shorter side to 768, charge 512-pixel tiles."""
    if media.detail == "low":
        return rules.image_base_tokens
    size = image_size(_head(media.source, HEAD_BYTES))
    if size is None or 0 in size:
        return rules.image_default_tokens
    scale = min(1.0, _LONGEST_PX / max(size), _SHORTEST_PX / min(size))
    columns, rows = (math.ceil(side * scale / _TILE_PX) for side in size)
    return rules.image_base_tokens + rules.image_tile_tokens * columns * rows


def _audio_s(source: str | None, rules: MediaSettings) -> float:
    held = _file_bytes(source)
    if held is None:
        return rules.unseen_media_s
    head = _head(source, _WAV_HEAD_BYTES)
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE" and len(head) == _WAV_HEAD_BYTES:
        bytes_per_s: int = struct.unpack_from("<I", head, 28)[0]
        return held / max(bytes_per_s, 1_000)  # telephone speech has 1,000; less is no audio
    return max(held, 1) / rules.audio_bytes_per_s


def _payload(source: str | None) -> int | None:
    """Return where the base64 begins in a data URI or bare base64, or None for a URL or nothing."""
    if source is None or source.startswith(("http://", "https://", "file://")):
        return None
    return source.find(",") + 1 if source.startswith("data:") else 0


def _file_bytes(source: str | None) -> int | None:
    start = _payload(source)
    return None if source is None or start is None else (len(source) - start) * 3 // 4


def _head(source: str | None, size: int) -> bytes:
    """Return the first `size` bytes of the file behind a source, or as many as can be seen."""
    start = _payload(source)
    if source is None or start is None:
        return b""
    encoded = source[start : start + math.ceil(size / 3) * 4]
    try:
        return b64decode(encoded + "=" * (-len(encoded) % 4))[:size]
    except ValueError:  # not base64, or not even ASCII
        return b""
