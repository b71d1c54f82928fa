"""Undo a request body's content encoding, within a bound."""

from __future__ import annotations

import zlib

from extproc.domain.errors import BadRequest, BodyTooLarge

_GZIP = frozenset({"gzip", "x-gzip"})
_SHOWN_CHARS = 32  # of an unknown encoding's name


def inflate(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """Return the body as its sender saw it.

    Raises:
        BodyTooLarge: more than `max_bytes` before or after; a bomb is noticed at the bound, not behind it.
        BadRequest: an encoding we do not undo, or a body that is not in it.
    """
    coding = content_encoding.strip().lower()
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    if coding in {"", "identity"}:
        return body
    if coding in _GZIP:
        return _inflated(body, zlib.MAX_WBITS | 16, coding, max_bytes)
    if coding == "deflate":
        return _inflated(
            body, zlib.MAX_WBITS if _has_zlib_header(body) else -zlib.MAX_WBITS, coding, max_bytes
        )
    shown = ascii(coding[:_SHOWN_CHARS])
    raise BadRequest(f"content-encoding {shown} is not supported; send gzip, deflate or none")


def _inflated(body: bytes, window_bits: int, coding: str, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj(window_bits)
    try:
        plain = inflater.decompress(body, max_bytes + 1)
    except zlib.error:
        raise BadRequest(f"the body is not valid {coding}") from None
    if len(plain) > max_bytes:
        raise _too_large(max_bytes)
    if not inflater.eof or inflater.unused_data:
        raise BadRequest(f"the {coding} body is cut short or followed by other bytes")
    return plain


def _has_zlib_header(body: bytes) -> bool:
    """Tell zlib's form of deflate (RFC 9110) from the bare one that some clients send (RFC 1950, 2.2)."""
    return len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than {max_bytes} bytes")
