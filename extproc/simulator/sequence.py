"""A sequence: one prompt, the answer generated for it, and what it holds in the KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

BLOCK_TOKENS = 16  # vLLM's default on GPUs


class SequenceState(Enum):
    """Where a sequence is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and the answer generated for it.

    Attributes:
        prompt_tokens: tokens to compute before the first output token, at least 1.
        output_tokens: tokens it will generate; 0 ends it with its prompt (embeddings, scores).
        priority: lower is served first; counts only under the priority policy.
        rank: place in the waiting order and, from the other end, in the order of pre-emption.
        state: waiting, running or ended.
        produced_tokens: output tokens so far.
        computed_tokens: tokens whose KV is stored.
        blocks: KV blocks held.
        preemptions: how often it lost its blocks.
    """

    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    rank: tuple[int, int] = (0, 0)
    state: SequenceState = SequenceState.WAITING
    produced_tokens: int = 0
    computed_tokens: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def pending_tokens(self) -> int:
        """Tokens to compute before the next output token."""
        return self.prompt_tokens + self.produced_tokens - self.computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether the next token computed extends the answer; else prompt, or output lost, comes first."""
        return self.produced_tokens > 0 and self.pending_tokens == 1


def blocks_for(tokens: int) -> int:
    """Return the KV blocks that hold `tokens`."""
    return -(-tokens // BLOCK_TOKENS)
