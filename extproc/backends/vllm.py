"""vLLM's own figures, from its Prometheus text."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families


def kv_tokens(exposition: str) -> int | None:
    """Return the tokens that one engine's KV cache holds, or None when it does not say.

    Sums `num_gpu_blocks x block_size` of `vllm:cache_config_info` over the engine's data-parallel ranks.
    """
    total = 0
    try:
        for family in text_string_to_metric_families(exposition):
            if family.name == "vllm:cache_config_info":
                total += sum(_tokens(sample.labels) for sample in family.samples if sample.value == 1)
    except ValueError:  # not Prometheus text
        return None
    return total or None


def _tokens(labels: dict[str, str]) -> int:
    try:
        tokens = float(labels["num_gpu_blocks"]) * float(labels["block_size"])
    except (KeyError, ValueError):  # `None` until the engine has sized its cache
        return 0
    return int(tokens) if math.isfinite(tokens) and tokens > 0 else 0
