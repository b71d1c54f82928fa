"""What one simulated engine is: its size, its speed and the answers it gives."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from extproc.simulator.batching import BatchLimits
from extproc.simulator.sequence import BLOCK_TOKENS
from extproc.simulator.steptime import StepTime

ANY_MODEL = "*"


class EngineSettings(BaseModel):
    """One engine. The defaults describe Llama-3.3-70B FP8 on two H100 under vLLM, with chat-like answers.

    Attributes:
        models: served names; the first is the default and the metrics' `model_name`. `*` accepts any.
        kv_tokens: size of the KV cache; one block of it is vLLM's null block and holds nothing.
        max_num_seqs: sequences that run side by side.
        max_num_batched_tokens: tokens that one step computes at most.
        max_model_len: longest prompt and answer together, tokens (see `context_tokens`).
        scheduling_policy: `priority` orders the queue by the body's `priority`, lower first.
        max_num_queued_reqs: requests in the engine, running ones included, above which new ones get 503.
        max_num_queued_tokens: prompt tokens not yet through, from which on new requests get 503.
        step_base_ms: a step's duration is this, plus the three terms below.
        step_prefill_token_ms: per prompt token computed in the step.
        step_decode_seq_ms: per sequence that extends its answer.
        step_kv_token_ms: per token stored in the KV cache.
        speed: how many times faster than modelled time passes.
        mean_output_tokens: mean length of an answer that ends by itself (lognormal).
        output_cv: standard deviation of that length over its mean; 0 makes all answers equally long.
        tokens_per_char: prompt tokens for one character of text.
        image_tokens: prompt tokens for one image.
        seed: answers of two engines with the same seed and order of requests are the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = Field(("llama-3.3-70b",), min_length=1)
    kv_tokens: int = Field(200_000, ge=4 * BLOCK_TOKENS)
    max_num_seqs: int = Field(128, ge=1)
    max_num_batched_tokens: int = Field(2048, ge=1)
    max_model_len: int = Field(32_768, ge=2)
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    max_num_queued_reqs: int | None = Field(None, ge=1)
    max_num_queued_tokens: int | None = Field(None, ge=1)
    step_base_ms: float = Field(18.8, ge=0)
    step_prefill_token_ms: float = Field(0.065, ge=0)
    step_decode_seq_ms: float = Field(0.097, ge=0)
    step_kv_token_ms: float = Field(3.3e-5, ge=0)
    speed: float = Field(1.0, gt=0)
    mean_output_tokens: float = Field(200.0, ge=1)
    output_cv: float = Field(1.0, ge=0)
    tokens_per_char: float = Field(0.25, gt=0)
    image_tokens: int = Field(576, ge=0)
    seed: int = 0

    @property
    def names(self) -> list[str]:
        """The served names without `*`; at least one."""
        return [name for name in self.models if name != ANY_MODEL] or ["simulated"]

    @property
    def served_model(self) -> str:
        """The name that metrics bear, and answers to requests that name no model."""
        return self.names[0]

    def serves(self, model: str) -> bool:
        """Whether a request for `model` is answered."""
        return model in self.models or ANY_MODEL in self.models

    @property
    def num_gpu_blocks(self) -> int:
        """KV blocks as vLLM reports them, the null block included."""
        return self.kv_tokens // BLOCK_TOKENS

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together: `max_model_len`, or what the KV cache holds if that is less.

        vLLM refuses to start with a cache smaller than its context; shrinking instead keeps tests short.
        """
        return min(self.max_model_len, (self.num_gpu_blocks - 1) * BLOCK_TOKENS)

    @property
    def limits(self) -> BatchLimits:
        """The engine's limits, as the scheduler takes them."""
        return BatchLimits(
            kv_blocks=self.num_gpu_blocks - 1,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            is_priority=self.scheduling_policy == "priority",
        )

    @property
    def step_time(self) -> StepTime:
        """The model of a step's duration, as the scheduler takes it."""
        return StepTime(
            base_ms=self.step_base_ms,
            per_prefill_token_ms=self.step_prefill_token_ms,
            per_decode_seq_ms=self.step_decode_seq_ms,
            per_kv_token_ms=self.step_kv_token_ms,
        )
