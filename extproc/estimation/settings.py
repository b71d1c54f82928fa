"""Settings of token estimation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

EncodingName = Literal["cl100k_base", "o200k_base"]


class MediaSettings(BaseModel):
    """Tokens of what is not text. The image rule is OpenAI's; the others are means over common engines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_base_tokens: PositiveInt = 85
    """Tokens of an image of low detail, and of every other image before its tiles."""
    image_tile_tokens: PositiveInt = 170
    """Tokens of each 512 x 512 tile of an image of high detail."""
    image_default_tokens: PositiveInt = 765
    """Tokens of an image whose size cannot be seen (a URL): that of 1024 x 1024."""
    audio_tokens_per_s: PositiveFloat = 25.0
    """Qwen2-Audio's rate; Voxtral has 12.5 and GPT-4o 10."""
    audio_bytes_per_s: PositiveInt = 16_000
    """MP3 at 128 kbit/s, for all but WAV, which tells its own rate."""
    video_tokens_per_s: PositiveFloat = 256.0
    """Two frames a second of 128 tokens."""
    video_bytes_per_s: PositiveInt = 125_000
    """1 Mbit/s."""
    unseen_media_s: PositiveFloat = 30.0
    """Length of audio and video behind a URL."""
    file_bytes_per_token: PositiveFloat = 50.0
    """PDF: a page of some 100 KB holds some 2,000 tokens."""
    file_default_tokens: PositiveInt = 2_000
    """A file behind a URL or an id."""
    data_bytes_per_token: PositiveFloat = 1.4
    """Base64 amid text, which engines do tokenise (measured: 1.39 in cl100k, 1.46 in o200k)."""


class EstimationSettings(BaseModel):
    """How bodies are read and counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encodings: dict[str, EncodingName] = Field(default_factory=dict)
    """Model pattern (as in `models`) to encoding, before the built-in table."""
    exact_bytes: Annotated[int, Field(ge=4_096, le=1 << 20)] = 65_536
    """UTF-8 bytes of text tokenised for one request; what goes beyond is extrapolated from a sample."""
    bytes_per_token: PositiveFloat = 4.0
    """For text that is not tokenised at all, when a lane is full. English has 4.7, Python code 3."""
    turn_tokens: Annotated[int, Field(ge=0)] = 4
    """What a chat template puts around each message, its role included."""
    reply_tokens: Annotated[int, Field(ge=0)] = 3
    """What it puts before the answer."""
    media: MediaSettings = MediaSettings()

    max_body_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 28)] = 16 << 20
    """Larger bodies are refused, compressed or not."""
    max_containers: PositiveInt = 200_000
    """Arrays and objects in one body; parsing that many stops all other threads for 50 ms."""
    max_values: PositiveInt = 1_000_000
    """Values in one body, such as token ids; parsing that many stops all other threads for 40 ms."""

    small_body_bytes: PositiveInt = 16_384
    """Bodies below this have a lane of their own and never wait behind larger ones."""
    small_threads: Annotated[int, Field(ge=1, le=64)] = 1
    large_threads: Annotated[int, Field(ge=1, le=64)] = 1
    small_waiting: PositiveInt = 64
    """Bodies in the small lane above which more are no longer tokenised but estimated from bytes."""
    large_waiting: PositiveInt = 8
    """The same for the large lane."""

    cache_entries: Annotated[int, Field(ge=0)] = 32_768
    """Texts whose token counts are remembered, about 250 bytes each; 0 remembers none."""
    cache_from_chars: PositiveInt = 256
    """Shorter texts are counted faster than looked up."""
