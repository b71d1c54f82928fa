"""Rules for what is not text."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.dialects import Media, MediaKind, Section
from extproc.estimation import MediaSettings
from extproc.estimation.image_size import image_size
from extproc.estimation.media_rules import media_tokens

RULES = MediaSettings()


def tokens(kind: MediaKind, source: str | None, detail: str | None = None) -> int:
    return media_tokens(Media(Section.MESSAGES, kind, source, detail), RULES)


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + header
        + struct.pack(">I", zlib.crc32(header))
        + b"rest"
    )


def jpeg(width: int, height: int, *, thumbnail: int = 0, frame: int = 0xC0) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", thumbnail + 2) + b"\xff" * thumbnail
    tables = b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0" + b"\xff"  # and a byte of padding
    return (
        b"\xff\xd8"
        + exif
        + tables
        + bytes([0xFF, frame])
        + struct.pack(">HBHH", 17, 8, height, width)
        + b"\x03"
    )


def webp(chunk: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def wav(seconds: float, rate: int) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(b"\0\0" * int(seconds * rate))
    return held.getvalue()


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (png(640, 480), (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 320, 200) + b"\0", (320, 200)),
        (jpeg(4000, 3000), (4000, 3000)),
        (jpeg(4000, 3000, thumbnail=60_000, frame=0xC2), (4000, 3000)),
        (webp(b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 550, 368)), (550, 368)),
        (webp(b"VP8L\0\0\0\0\x2f" + struct.pack("<I", 549 | 367 << 14)), (550, 368)),
        (
            webp(b"VP8X\0\0\0\0\0\0\0\0" + (549).to_bytes(3, "little") + (367).to_bytes(3, "little")),
            (550, 368),
        ),
        (webp(b"ALPH\0\0\0\0\0\0\0\0\0\0\0\0"), None),
        (png(640, 480)[:20], None),
        (jpeg(640, 480)[:12], None),
        (b"\xff\xd8\x00\x00", None),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_head(head, size):
    assert image_size(head) == size


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF....WEBPVP8X", b"\xff\xd8"]),
    st.binary(max_size=80),
)
def test_any_bytes_have_a_size_or_none(magic, rest):
    size = image_size(magic + rest)
    assert size is None or len(size) == 2


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1024, 1024), 765),  # OpenAI's own examples
        ((2048, 4096), 1105),
        ((512, 512), 255),
        ((100, 100), 255),
        ((65_000, 100), 85 + 170 * 4),
    ],
)
def test_images_cost_their_tiles(size, expected):
    assert tokens(MediaKind.IMAGE, uri(png(*size))) == expected
    assert tokens(MediaKind.IMAGE, b64encode(png(*size)).decode(), "high") == expected


def test_images_of_low_detail_cost_the_same_whatever_their_size():
    assert tokens(MediaKind.IMAGE, uri(png(4096, 4096)), "low") == 85


@pytest.mark.parametrize(
    "source", [None, "https://example.com/a.png", "data:", "not base64 é", uri(b"<svg/>"), uri(png(0, 9))]
)
def test_an_image_whose_size_cannot_be_seen_has_the_default(source):
    assert tokens(MediaKind.IMAGE, source) == 765


def test_audio_costs_its_seconds():
    assert tokens(MediaKind.AUDIO, b64encode(wav(10, 8_000)).decode()) == pytest.approx(250, abs=2)
    assert tokens(MediaKind.AUDIO, b64encode(wav(10, 48_000)).decode()) == pytest.approx(250, abs=2)
    assert tokens(MediaKind.AUDIO, uri(b"ID3" + b"\0" * 159_997, "audio/mpeg")) == pytest.approx(250, abs=2)
    assert tokens(MediaKind.AUDIO, "https://example.com/a.mp3") == 750


def test_a_wav_that_claims_no_rate_is_not_endless():
    assert tokens(MediaKind.AUDIO, b64encode(b"RIFF....WAVE" + b"\0" * 986).decode()) == 25


def test_video_and_files_go_by_their_bytes():
    assert tokens(MediaKind.VIDEO, uri(b"\0" * 1_250_000, "video/mp4")) == pytest.approx(2_560, abs=1)
    assert tokens(MediaKind.VIDEO, "https://example.com/a.mp4") == 7_680
    assert tokens(MediaKind.FILE, uri(b"%PDF" + b"\0" * 99_995, "application/pdf")) == 2_000
    assert tokens(MediaKind.FILE, None) == 2_000


def test_a_data_uri_amid_text_goes_by_its_characters():
    assert tokens(MediaKind.DATA, "data:image/png;base64," + "A" * 13_978) == 10_000


@given(st.sampled_from(MediaKind), st.none() | st.text(), st.none() | st.text())
def test_any_source_costs_something(kind, source, detail):
    assert tokens(kind, source, detail) >= 1
