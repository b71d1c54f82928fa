from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from extproc.domain.errors import ConfigError
from extproc.estimation import encodings
from extproc.estimation.encodings import ENCODING_NAMES, encoding_name, load
from extproc.estimation.settings import EncodingName

O200K = """
    gpt-4o gpt-4o-mini-2024-07-18 gpt-4.1-nano gpt-4.5-preview gpt-5 gpt-5.1-codex o1 o1-mini o3 o4-mini-high GPT-4O
    chatgpt-4o-latest openai/gpt-oss-120b ft:gpt-4o:acme::x meta-llama/Llama-4-Scout-17B-16E-Instruct
    microsoft/Phi-4-mini-instruct
"""
CL100K = """
    gpt-4 gpt-4-turbo gpt-3.5-turbo text-embedding-3-small davinci-002 meta-llama/Llama-3.3-70B-Instruct Qwen/Qwen3-8B
    mistralai/Mistral-7B-v0.3 microsoft/phi-4 olmo-2 o1x
"""


@pytest.mark.parametrize("model", O200K.split())
def test_newer_openai_models_and_their_like_have_o200k(model):
    assert encoding_name(model) == "o200k_base"


@pytest.mark.parametrize("model", CL100K.split())
def test_other_models_have_cl100k_as_the_nearest(model):
    assert encoding_name(model) == "cl100k_base"


def test_no_model_has_an_encoding_too():
    assert encoding_name(None) == encoding_name("") == "cl100k_base"


def test_the_operators_patterns_come_first():
    chosen: dict[str, EncodingName] = {"prod-*": "o200k_base", "*": "cl100k_base"}
    assert encoding_name("prod-chat", chosen) == "o200k_base"
    assert encoding_name("gpt-4o", chosen) == "cl100k_base"


def test_every_encoding_can_be_chosen():
    assert set(ENCODING_NAMES) == set(get_args(EncodingName))


def test_encodings_load_without_any_network():
    """In a process of its own, where the first touch of a socket would end it."""
    code = """
import sys

def forbid(event, args):
    if event.startswith("socket."):
        raise SystemExit(f"touched the network: {event}")

sys.addaudithook(forbid)
from extproc.dialects import recognise
from extproc.estimation import TiktokenEstimator

estimator = TiktokenEstimator()
estimator.warm_up()
endpoint = recognise("/v1/completions")
print(*(estimator.explain(endpoint, b'{"model": "%b", "prompt": "hello world"}' % model)["prompt_tokens"]
        for model in (b"gpt-4", b"gpt-4o")))
estimator.close()
"""
    empty = {"PATH": "", "TIKTOKEN_CACHE_DIR": ""}
    ran = subprocess.run([sys.executable, "-c", code], env=empty, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "2 2\n", "")


def test_ranks_with_another_hash_are_refused():
    with pytest.raises(ConfigError, match="SHA-256 2239"):
        encodings._ranks("cl100k_base", "0" * 64)


def test_ranks_that_are_not_there_are_a_fault_that_names_them():
    with pytest.raises(ConfigError, match="ranks of r50k_base cannot be read"):
        encodings._ranks("r50k_base", "0" * 64)


def test_an_encoding_is_loaded_once():
    assert load("cl100k_base") is load("cl100k_base")
