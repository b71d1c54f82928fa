"""The metrics are vLLM's."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from extproc.simulator.settings import EngineSettings
from extproc.simulator.telemetry import one_two_five

# Constant in every engine without the hardware, the second cache or the modality they speak of.
NOT_MODELLED = {
    "vllm:estimated_flops_per_gpu",
    "vllm:estimated_read_bytes_per_gpu",
    "vllm:estimated_write_bytes_per_gpu",
    "vllm:engine_sleep_state",
    "vllm:external_prefix_cache_hits",
    "vllm:external_prefix_cache_queries",
    "vllm:mm_cache_hits",
    "vllm:mm_cache_queries",
    "vllm:prompt_tokens_cached_by_source",
}


def families(text: str) -> dict[str, Metric]:
    return {
        family.name: family
        for family in text_string_to_metric_families(text)
        if family.name.startswith("vllm:") and not family.name.endswith("_created")
    }


def series(family: Metric) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the samples' names and labels, buckets included."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def test_every_series_is_one_of_vllms_by_name_type_labels_and_buckets(engine, recorded):
    ours, theirs = families(await engine.metrics()), families(recorded("metrics.txt"))
    assert theirs.keys() - ours.keys() == NOT_MODELLED
    assert ours.keys() <= theirs.keys()
    for name, family in ours.items():
        assert family.type == theirs[name].type, name
        if name != "vllm:cache_config_info":
            assert series(family) == series(theirs[name]), name


async def test_the_size_of_the_cache_can_be_read_as_from_vllm(start_engine, recorded):
    engine = await start_engine(kv_tokens=32_000)
    (ours,) = families(await engine.metrics())["vllm:cache_config_info"].samples
    (theirs,) = families(recorded("metrics.txt"))["vllm:cache_config_info"].samples
    assert ours.labels.keys() <= theirs.labels.keys()
    assert (ours.labels["num_gpu_blocks"], ours.labels["block_size"]) == ("2000", "16")
    assert ours.value == 1


async def test_a_served_request_shows_in_the_metrics(engine):
    body = {"messages": [], "max_tokens": 5, "ignore_eos": True}
    await engine.post("/v1/chat/completions", body, headers={"x-sim-prompt-tokens": "300"})
    text = await engine.metrics()
    for line in (
        'vllm:prompt_tokens_total{engine="0",model_name="tiny"} 300.0',
        'vllm:generation_tokens_total{engine="0",model_name="tiny"} 5.0',
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1.0',
        'vllm:request_prompt_tokens_bucket{engine="0",le="200.0",model_name="tiny"} 0.0',
        'vllm:request_prompt_tokens_bucket{engine="0",le="500.0",model_name="tiny"} 1.0',
        'vllm:request_params_max_tokens_sum{engine="0",model_name="tiny"} 5.0',
    ):
        assert line in text.splitlines()


def test_buckets_of_token_counts_end_at_the_context():
    assert one_two_five(4096)[-3:] == (500, 1000, 2000)
    assert one_two_five(5000)[-1] == 5000


def test_the_default_engine_is_the_one_of_the_model():
    settings = EngineSettings()
    assert settings.num_gpu_blocks * 16 == 200_000
    assert settings.limits.kv_blocks == settings.num_gpu_blocks - 1
    assert settings.step_time.duration_s(prefill_tokens=1000, decode_seqs=100, kv_tokens=100_000) == 0.001 * (
        18.8 + 65 + 9.7 + 3.3
    )
