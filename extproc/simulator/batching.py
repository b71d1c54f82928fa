"""Continuous batching: which sequences compute how many tokens in the next step of an engine.

The rules are those of vLLM's V1 scheduler, written from its behaviour:

- Running sequences go first, in the order they were admitted. One that decodes needs one token, one whose
  prompt is not through takes what is left of the step's token budget (chunked prefill).
- A running sequence that finds no free KV block pre-empts the running one of the worst rank, possibly
  itself. The victim loses its blocks, waits again and recomputes prompt and output so far.
- Waiting sequences are admitted in rank order while sequences and tokens are left in the step, nothing was
  pre-empted in it, and the *whole* prompt finds room (vLLM's `scheduler_reserve_full_isl`). The first one
  that does not fit blocks those behind it.
- The KV of an output token is stored in the step after the one that produced it.

Pure: no clock, no I/O. A caller alternates `schedule` and `complete`; what happens between them (arrivals,
aborts) happens while the step runs.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter

from extproc.simulator.sequence import Sequence, SequenceState, blocks_for
from extproc.simulator.steptime import StepTime

_rank = attrgetter("rank")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one engine can hold and do at once.

    Attributes:
        kv_blocks: blocks of `BLOCK_TOKENS` tokens in the KV cache.
        max_num_seqs: sequences that may run side by side.
        max_num_batched_tokens: tokens that one step computes at most.
        is_priority: wait by priority, then arrival, instead of by arrival alone.
    """

    kv_blocks: int
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    is_priority: bool = False


@dataclass(slots=True)
class Batch:
    """One step of the engine.

    Attributes:
        tokens: tokens each scheduled sequence computes.
        admitted: sequences that left the queue for this step, resumed ones included.
        preempted: sequences that went back to the queue.
        decode_seqs: scheduled sequences that extend their output; the other tokens are prefill.
        kv_tokens: tokens stored in the KV cache when it ends.
        duration_s: how long the step takes.
    """

    tokens: dict[Sequence, int] = field(default_factory=dict)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    decode_seqs: int = 0
    kv_tokens: int = 0
    duration_s: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(self.tokens.values())

    @property
    def prefill_tokens(self) -> int:
        """Tokens of prompts, and of outputs recomputed after a pre-emption."""
        return self.total_tokens - self.decode_seqs


class Batching:
    """The sequences of one engine: those that wait, those that run, and the KV blocks they hold."""

    def __init__(self, limits: BatchLimits, step_time: StepTime | None = None) -> None:
        self.limits = limits
        self.step_time = step_time or StepTime()
        self.waiting: list[Sequence] = []  # by rank
        self.running: list[Sequence] = []  # in the order of admission
        self.free_blocks = limits.kv_blocks
        self._arrivals = 0

    @property
    def used_blocks(self) -> int:
        """KV blocks held by running sequences."""
        return self.limits.kv_blocks - self.free_blocks

    @property
    def kv_tokens(self) -> int:
        """Tokens stored in the KV cache."""
        return sum(sequence.computed_tokens for sequence in self.running)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self.running and not self.waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence.

        Raises:
            ValueError: it could never run, even alone.
        """
        needed = blocks_for(sequence.prompt_tokens + sequence.output_tokens)
        if sequence.prompt_tokens < 1 or needed > self.limits.kv_blocks:
            raise ValueError(f"a sequence of {needed} blocks does not fit {self.limits.kv_blocks}")
        self._arrivals += 1
        sequence.rank = (sequence.priority if self.limits.is_priority else 0, self._arrivals)
        insort(self.waiting, sequence, key=_rank)

    def abort(self, sequence: Sequence) -> None:
        """Drop a sequence and free what it holds; harmless when it has ended."""
        if sequence.state is SequenceState.WAITING:
            self.waiting.remove(sequence)
        elif sequence.state is SequenceState.RUNNING:
            self._stop(sequence)
        sequence.state = SequenceState.ENDED

    def schedule(self) -> Batch:
        """Begin a step: choose what it computes and take the KV blocks for it."""
        batch = Batch()
        budget = self._extend_running(batch, self.limits.max_num_batched_tokens)
        if not batch.preempted:
            self._admit_waiting(batch, budget)
        batch.decode_seqs = sum(1 for sequence in batch.tokens if sequence.is_decoding)
        batch.kv_tokens = self.kv_tokens + batch.total_tokens
        batch.duration_s = self.step_time.duration_s(
            prefill_tokens=batch.prefill_tokens, decode_seqs=batch.decode_seqs, kv_tokens=batch.kv_tokens
        )
        return batch

    def complete(self, batch: Batch) -> list[Sequence]:
        """End a step; return the sequences that produced a token in it, or ended with their prompt.

        Sequences aborted since `schedule` are passed over.
        """
        advanced = []
        for sequence, tokens in batch.tokens.items():
            if sequence.state is not SequenceState.RUNNING:
                continue
            sequence.computed_tokens += tokens
            if sequence.pending_tokens:
                continue  # more of the prompt to come
            advanced.append(sequence)
            if sequence.output_tokens:
                sequence.produced_tokens += 1
            if sequence.produced_tokens == sequence.output_tokens:
                self._stop(sequence)
                sequence.state = SequenceState.ENDED
        return advanced

    def step(self) -> tuple[list[Sequence], float]:
        """Do a whole step at once, for simulations in discrete events: what advanced, and its seconds."""
        batch = self.schedule()
        return self.complete(batch), batch.duration_s

    def _extend_running(self, batch: Batch, budget: int) -> int:
        """Give running sequences their tokens; return the budget that is left."""
        for sequence in tuple(self.running):
            if not budget:
                break
            if sequence.state is not SequenceState.RUNNING:
                continue  # pre-empted by one before it
            tokens = min(sequence.pending_tokens, budget)
            while not self._take_blocks(sequence, tokens):
                victim = max(self.running, key=_rank)
                budget += batch.tokens.pop(victim, 0)
                self._preempt(victim)
                batch.preempted.append(victim)
                if victim is sequence:
                    break
            else:
                batch.tokens[sequence] = tokens
                budget -= tokens
        return budget

    def _admit_waiting(self, batch: Batch, budget: int) -> None:
        while self.waiting and budget and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            if blocks_for(sequence.pending_tokens) > self.free_blocks:
                break
            del self.waiting[0]
            tokens = min(sequence.pending_tokens, budget)
            self._take_blocks(sequence, tokens)
            sequence.state = SequenceState.RUNNING
            self.running.append(sequence)
            batch.admitted.append(sequence)
            batch.tokens[sequence] = tokens
            budget -= tokens

    def _take_blocks(self, sequence: Sequence, tokens: int) -> bool:
        """Take the blocks that `tokens` more need; return whether there were enough."""
        missing = blocks_for(sequence.computed_tokens + tokens) - sequence.blocks
        if missing > self.free_blocks:
            return False
        sequence.blocks += missing
        self.free_blocks -= missing
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._stop(sequence)
        sequence.state = SequenceState.WAITING
        sequence.computed_tokens = 0
        sequence.preemptions += 1
        insort(self.waiting, sequence, key=_rank)

    def _stop(self, sequence: Sequence) -> None:
        """Take a sequence out of the running ones and free its blocks."""
        self.running.remove(sequence)
        self.free_blocks += sequence.blocks
        sequence.blocks = 0
