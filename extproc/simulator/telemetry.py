"""The engine's /metrics: vLLM's series by name, type, labels and buckets, with the values vLLM would give.

What counts when is vLLM's doing, seen on 0.32: prompt tokens are counted as the prompt's last chunk is
through; per-request series are observed when a request completes, so an aborted one is in the token
counters and the time to first token, and in no per-request series; gauges are set at the end of a step.

Times are those of this machine's clock: at a speed of 10 they are a tenth of the modelled ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extproc.simulator.sequence import BLOCK_TOKENS, Sequence
from extproc.simulator.settings import EngineSettings

_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
_PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60),
    *(120, 240, 480, 960, 1920, 7680),
)
_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(slots=True)
class Timeline:
    """When a sequence passed its stations, seconds of the loop's clock."""

    arrived_s: float
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0


class Telemetry:
    """Counts what the engine does.

    Attributes:
        registry: what `/metrics` exposes.
    """

    _LABELS: ClassVar = ("model_name", "engine")

    def __init__(self, settings: EngineSettings) -> None:
        self.registry = CollectorRegistry()
        self._model = settings.served_model
        self._define_gauges(settings)
        self._define_counters()
        self._define_token_histograms(settings.context_tokens)
        self._define_time_histograms()

    def scheduler(self, *, running: int, waiting: int, kv_usage: float) -> None:
        """Set the gauges to the scheduler's state; `kv_usage` is 0 to 1."""
        self._running.set(running)
        self._waiting.set(waiting)
        self._waiting_for_capacity.set(waiting)
        self._kv_usage.set(kv_usage)

    def step(self, *, tokens: int, preemptions: int) -> None:
        """Count a step that gave out `tokens`, prompts that got through included."""
        if tokens:
            self._iteration_tokens.observe(tokens)
        if preemptions:
            self._preemptions.inc(preemptions)

    def first_token(self, sequence: Sequence, timeline: Timeline) -> None:
        """Count a prompt that is through."""
        self._prompt_tokens.inc(sequence.prompt_tokens)
        self._computed_prompt_tokens.inc(sequence.prompt_tokens)
        self._ttft.observe(timeline.first_token_s - timeline.arrived_s)

    def generated(self, tokens: int) -> None:
        """Count the output tokens of a step."""
        self._generation_tokens.inc(tokens)

    def inter_token(self, gap_s: float) -> None:
        """Observe the time since the same sequence's token before."""
        self._inter_token.observe(gap_s)

    def request(self, *, answers: int, max_tokens: int | None) -> None:
        """Observe what a completed request had asked for."""
        self._params_n.observe(answers)
        if max_tokens is not None:
            self._params_max_tokens.observe(max_tokens)

    def finished(self, sequence: Sequence, timeline: Timeline, reason: str, *, now_s: float) -> None:
        """Observe a sequence that came to its end."""
        produced = sequence.produced_tokens
        decode_s = timeline.last_token_s - timeline.first_token_s
        self._success[reason].inc()
        self._request_prompt_tokens.observe(sequence.prompt_tokens)
        self._request_computed_tokens.observe(sequence.prompt_tokens)
        self._request_generation_tokens.observe(produced)
        self._request_max_generation_tokens.observe(produced)
        self._request_preemptions.observe(sequence.preemptions)
        self._e2e.observe(now_s - timeline.arrived_s)
        self._queue_time.observe(timeline.scheduled_s - timeline.arrived_s)
        self._prefill_time.observe(timeline.first_token_s - timeline.scheduled_s)
        self._inference_time.observe(timeline.last_token_s - timeline.scheduled_s)
        self._decode_time.observe(decode_s)
        self._per_token.observe(decode_s / (produced - 1) if produced > 1 else 0.0)

    def rejected(self, reason: str) -> None:
        """Count a request that found the queue full."""
        self._rejections[reason].inc()

    def _define_gauges(self, settings: EngineSettings) -> None:
        self._running = self._gauge("num_requests_running", "Requests in the running batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait to be scheduled.")
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Waiting requests by what they wait for; nothing is ever deferred here.",
            (*self._LABELS, "reason"),
            registry=self.registry,
        )
        self._waiting_for_capacity = by_reason.labels(self._model, "0", "capacity")
        by_reason.labels(self._model, "0", "deferred")
        self._kv_usage = self._gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.")
        info = {
            "block_size": str(BLOCK_TOKENS),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "engine": "0",
            "kv_cache_size_tokens": str(settings.num_gpu_blocks * BLOCK_TOKENS),
            "num_gpu_blocks": str(settings.num_gpu_blocks),
        }
        cache = Gauge(
            "vllm:cache_config_info", "The KV cache, as labels.", tuple(info), registry=self.registry
        )
        cache.labels(**info).set(1)

    def _define_counters(self) -> None:
        self._counter("prefix_cache_queries", "Tokens looked up in the prefix cache; there is none.")
        self._counter("prefix_cache_hits", "Tokens found in the prefix cache; there is none.")
        self._preemptions = self._counter("num_preemptions", "Pre-emptions, each of one sequence.")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts that got through.")
        by_source = self._counters(
            "prompt_tokens_by_source",
            "Tokens of prompts by where their KV came from.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._computed_prompt_tokens = by_source["local_compute"]
        self._counter("prompt_tokens_cached", "Prompt tokens taken from a cache; none are.")
        self._generation_tokens = self._counter("generation_tokens", "Output tokens.")
        self._success = self._counters(
            "request_success",
            "Sequences that came to their end.",
            "finished_reason",
            ("stop", "length", "abort", "error", "repetition"),
        )
        rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused because the queue was full.",
            ("model_name", "reason"),  # as in vLLM, it is the API server's and has no engine
            registry=self.registry,
        )
        self._rejections = {
            reason: rejections.labels(self._model, reason)
            for reason in ("max_num_queued_reqs", "max_num_queued_tokens")
        }

    def _define_token_histograms(self, context_tokens: int) -> None:
        sizes = one_two_five(context_tokens)
        self._request_prompt_tokens = self._histogram("request_prompt_tokens", "Prompt tokens.", sizes)
        self._request_generation_tokens = self._histogram(
            "request_generation_tokens", "Output tokens.", sizes
        )
        self._iteration_tokens = self._histogram(
            "iteration_tokens_total", "Tokens given out by one step.", _ITERATION_TOKENS
        )
        self._request_max_generation_tokens = self._histogram(
            "request_max_num_generation_tokens", "Output tokens of the longest answer.", sizes
        )
        self._params_n = self._histogram("request_params_n", "Answers asked for.", (1, 2, 5, 10, 20))
        self._params_max_tokens = self._histogram("request_params_max_tokens", "Output limit.", sizes)
        self._request_preemptions = self._histogram(
            "request_num_preemptions", "Pre-emptions of one sequence.", (1, 2, 3, 4, 5, 10, 20)
        )
        self._request_computed_tokens = self._histogram(
            "request_prefill_kv_computed_tokens", "Prompt tokens computed, not cached.", sizes
        )

    def _define_time_histograms(self) -> None:
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.", _TTFT_S)
        self._inter_token = self._histogram("inter_token_latency_seconds", "Token to token.", _PER_TOKEN_S)
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds", "Mean time per output token.", _PER_TOKEN_S
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to end.", _REQUEST_S)
        self._queue_time = self._histogram("request_queue_time_seconds", "Arrival to scheduled.", _REQUEST_S)
        self._inference_time = self._histogram(
            "request_inference_time_seconds", "Scheduled to last token.", _REQUEST_S
        )
        self._prefill_time = self._histogram(
            "request_prefill_time_seconds", "Scheduled to first token.", _REQUEST_S
        )
        self._decode_time = self._histogram(
            "request_decode_time_seconds", "First token to last token.", _REQUEST_S
        )

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(f"vllm:{name}", help_, self._LABELS, registry=self.registry).labels(self._model, "0")

    def _counter(self, name: str, help_: str) -> Counter:
        return Counter(f"vllm:{name}", help_, self._LABELS, registry=self.registry).labels(self._model, "0")

    def _counters(self, name: str, help_: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        family = Counter(f"vllm:{name}", help_, (*self._LABELS, label), registry=self.registry)
        return {value: family.labels(self._model, "0", value) for value in values}

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(f"vllm:{name}", help_, self._LABELS, buckets=buckets, registry=self.registry)
        return family.labels(self._model, "0")


def one_two_five(largest: int) -> tuple[int, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to `largest`, as vLLM spaces its buckets of token counts."""
    steps = (digit * 10**power for power in range(len(str(largest))) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= largest)
