"""Laws of the batch, whatever comes and goes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extproc.simulator.batching import Batch, Batching, BatchLimits
from extproc.simulator.sequence import BLOCK_TOKENS, Sequence, SequenceState, blocks_for

KV_BLOCKS = 12


class Arrivals(RuleBasedStateMachine):
    """Sequences come, run and are aborted, also while a step runs."""

    @initialize(
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.sampled_from([1, 7, 16, 100]),
        is_priority=st.booleans(),
    )
    def begin(self, *, max_num_seqs: int, max_num_batched_tokens: int, is_priority: bool) -> None:
        self.limits = BatchLimits(
            kv_blocks=KV_BLOCKS,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            is_priority=is_priority,
        )
        self.batching = Batching(self.limits)
        self.batch: Batch | None = None
        self.sequences: list[Sequence] = []
        self.aborted: set[Sequence] = set()
        self.started: list[Sequence] = []

    @rule(
        prompt=st.integers(1, KV_BLOCKS * BLOCK_TOKENS // 2),
        output=st.integers(0, KV_BLOCKS * BLOCK_TOKENS // 2),
        priority=st.integers(0, 2),
    )
    def come(self, prompt: int, output: int, priority: int) -> None:
        sequence = Sequence(prompt, output, priority)
        self.batching.add(sequence)
        self.sequences.append(sequence)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        if sequence.state is not SequenceState.ENDED:
            self.aborted.add(sequence)
        self.batching.abort(sequence)

    @precondition(lambda self: self.batch is None)
    @rule()
    def schedule(self) -> None:
        had_work = not self.batching.is_idle
        self.batch = self.batching.schedule()
        assert self.batch.total_tokens <= self.limits.max_num_batched_tokens
        assert bool(self.batch.tokens) == had_work, "a step with work to do makes progress"
        assert all(tokens > 0 for tokens in self.batch.tokens.values())
        assert not (self.batch.preempted and self.batch.admitted)
        self.started += [sequence for sequence in self.batch.admitted if not sequence.preemptions]

    @precondition(lambda self: self.batch is not None)
    @rule()
    def complete(self) -> None:
        assert self.batch is not None
        for sequence in self.batching.complete(self.batch):
            assert sequence not in self.aborted
        self.batch = None
        for sequence in self.batching.running:
            assert sequence.blocks == blocks_for(sequence.computed_tokens)

    @invariant()
    def blocks_are_neither_lost_nor_made(self) -> None:
        held = sum(sequence.blocks for sequence in self.sequences)
        assert held + self.batching.free_blocks == KV_BLOCKS
        assert self.batching.free_blocks >= 0
        assert self.batching.kv_tokens <= KV_BLOCKS * BLOCK_TOKENS

    @invariant()
    def each_sequence_is_in_one_place(self) -> None:
        by_state = {state: set() for state in SequenceState}
        for sequence in self.sequences:
            by_state[sequence.state].add(sequence)
            assert bool(sequence.blocks) <= (sequence.state is SequenceState.RUNNING)
        assert by_state[SequenceState.WAITING] == set(self.batching.waiting)
        assert by_state[SequenceState.RUNNING] == set(self.batching.running)
        assert len(self.batching.running) <= self.limits.max_num_seqs
        ranks = [sequence.rank for sequence in self.batching.waiting]
        assert ranks == sorted(ranks)

    @invariant()
    def first_come_is_first_served(self) -> None:
        if not self.limits.is_priority:
            ranks = [sequence.rank for sequence in self.started]
            assert ranks == sorted(ranks)

    def teardown(self) -> None:
        """Whatever happened, every sequence comes to its end and everything is given back."""
        if not hasattr(self, "batching"):
            return
        if self.batch is not None:
            self.batching.complete(self.batch)
        # Each may be computed again for each pre-emption by those of a better rank.
        for _ in range(5_000 * (1 + len(self.sequences))):
            if self.batching.is_idle:
                break
            self.batching.step()
        assert self.batching.is_idle
        assert self.batching.free_blocks == KV_BLOCKS
        for sequence in self.sequences:
            assert sequence.state is SequenceState.ENDED
            assert (sequence.produced_tokens == sequence.output_tokens) or sequence in self.aborted


Arrivals.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_laws_of_the_batch = Arrivals.TestCase
