"""vLLM's figures, from pages it served."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.backends.vllm import kv_tokens

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("page", ["vllm_idle.txt", "vllm_under_load.txt", "vllm_after_rejections.txt"])
def test_a_recorded_page_tells_the_size_of_the_cache(page):
    text = (FIXTURES / page).read_text()
    assert kv_tokens(text) == 8192 * 128 == 1_048_576
    assert 'kv_cache_size_tokens="1048576"' in text  # what the engine itself says


def info(value: str = "1.0", **labels: str) -> str:
    named = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"vllm:cache_config_info{{{named}}} {value}\n"


HEAD = "# HELP vllm:cache_config_info Information\n# TYPE vllm:cache_config_info gauge\n"


def test_data_parallel_ranks_add_up():
    page = HEAD + "".join(info(block_size="16", engine=str(n), num_gpu_blocks="100") for n in range(2))
    assert kv_tokens(page) == 3200


@pytest.mark.parametrize(
    "page",
    [
        "",
        "# nothing of ours\nother 1\n",
        HEAD + info(block_size="16", num_gpu_blocks="None"),
        HEAD + info(block_size="16", num_gpu_blocks="nan"),
        HEAD + info(block_size="16", num_gpu_blocks="inf"),
        HEAD + info(block_size="16", num_gpu_blocks="0"),
        HEAD + info(block_size="16", num_gpu_blocks="-3"),
        HEAD + info(block_size="16"),
        HEAD + info("0.0", block_size="16", num_gpu_blocks="100"),
        "<html>not found</html>",
        "vllm:cache_config_info{block_size=",
    ],
    ids=["empty", "others", "none", "nan", "inf", "zero", "less", "no blocks", "value 0", "html", "cut"],
)
def test_what_it_does_not_say_is_unknown_not_zero(page):
    assert kv_tokens(page) is None
