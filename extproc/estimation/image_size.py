"""Width and height of an image, from the first bytes of its file."""

from __future__ import annotations

import struct

HEAD_BYTES = 96 << 10  # a JPEG may have a thumbnail of up to 64 KB before its size


def image_size(head: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, GIF, WebP or JPEG, or None where they cannot be seen."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack_from(">II", head, 16)
        if head.startswith((b"GIF87a", b"GIF89a")):
            return struct.unpack_from("<HH", head, 6)
        if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
            return _webp_size(head)
        if head.startswith(b"\xff\xd8"):
            return _jpeg_size(head)
    except (struct.error, IndexError):  # cut short
        return None
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Read the first chunk (RFC 9649, 2.5 to 2.7)."""
    chunk = head[12:16]
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X":
        width, height = struct.unpack_from("<I", head, 24)[0], struct.unpack_from("<I", head + b"\0", 27)[0]
        return (width & 0xFFFFFF) + 1, (height & 0xFFFFFF) + 1
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Walk the segments to the frame header, SOF0 to SOF15 but DHT, JPG and DAC (ITU T.81, B.2.2)."""
    place = 2
    while head[place] == 0xFF:
        marker = head[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", head, place + 5)
            return width, height
        else:
            place += 2 + max(2, struct.unpack_from(">H", head, place + 2)[0])
    return None
