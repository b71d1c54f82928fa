"""How long one step of an engine takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes: a + b x prefill tokens + c x decoding sequences + d x KV tokens.

    The defaults describe Llama-3.3-70B FP8 on two H100 under vLLM.
    """

    base_ms: float = 18.8
    per_prefill_token_ms: float = 0.065
    per_decode_seq_ms: float = 0.097
    per_kv_token_ms: float = 3.3e-5

    def duration_s(self, *, prefill_tokens: int, decode_seqs: int, kv_tokens: int) -> float:
        """Return the seconds of one step; `kv_tokens` are those stored when it ends."""
        return 1e-3 * (
            self.base_ms
            + self.per_prefill_token_ms * prefill_tokens
            + self.per_decode_seq_ms * decode_seqs
            + self.per_kv_token_ms * kv_tokens
        )
