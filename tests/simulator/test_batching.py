"""How the batch is made up, step by step."""

from __future__ import annotations

import pytest

from extproc.simulator.batching import Batching, BatchLimits
from extproc.simulator.sequence import Sequence, SequenceState, blocks_for
from extproc.simulator.steptime import StepTime


def batching(**limits) -> Batching:
    return Batching(BatchLimits(**{"kv_blocks": 1000} | limits))


def add(batching: Batching, prompt: int, output: int, **fields) -> Sequence:
    sequence = Sequence(prompt, output, **fields)
    batching.add(sequence)
    return sequence


def finish(batching: Batching, steps: int = 10_000) -> list[Sequence]:
    """Step until nothing is left; return the sequences in the order of their ends."""
    ended = []
    while not batching.is_idle and steps:
        advanced, _ = batching.step()
        ended += [sequence for sequence in advanced if sequence.state is SequenceState.ENDED]
        steps -= 1
    assert batching.is_idle
    return ended


def test_the_step_that_ends_a_prompt_gives_the_first_token():
    one = batching()
    sequence = add(one, 100, 3)
    assert [one.step()[0] for _ in range(3)] == [[sequence]] * 3
    assert one.is_idle
    assert sequence.produced_tokens == 3


def test_a_prompt_longer_than_the_step_is_computed_in_chunks():
    one = batching(max_num_batched_tokens=2048)
    sequence = add(one, 5000, 1)
    chunks = []
    for _ in range(3):
        batch = one.schedule()
        chunks.append(batch.tokens[sequence])
        one.complete(batch)
    assert chunks == [2048, 2048, 904]
    assert sequence.produced_tokens == 1


def test_decoding_goes_before_prompts():
    one = batching(max_num_batched_tokens=64)
    decoding = [add(one, 8, 50) for _ in range(4)]
    one.step()
    late = add(one, 1000, 1)
    batch = one.schedule()
    assert [batch.tokens[sequence] for sequence in decoding] == [1, 1, 1, 1]
    assert batch.tokens[late] == 60
    assert (batch.decode_seqs, batch.prefill_tokens) == (4, 60)


def test_what_the_budget_does_not_reach_waits_for_the_next_step():
    one = batching(max_num_batched_tokens=2)
    sequences = [add(one, 1, 9) for _ in range(3)]
    one.step()
    one.step()
    assert [sequence.produced_tokens for sequence in sequences] == [2, 2, 0]


def test_two_prompts_share_a_step():
    one = batching(max_num_batched_tokens=100)
    first, second = add(one, 60, 1), add(one, 60, 1)
    assert one.schedule().tokens == {first: 60, second: 40}


def test_no_more_sequences_run_than_allowed():
    one = batching(max_num_seqs=2)
    first, _, third = add(one, 10, 1), add(one, 10, 5), add(one, 10, 1)
    one.step()
    assert (len(one.running), one.waiting) == (1, [third])
    assert first.state is SequenceState.ENDED


def test_a_prompt_waits_until_the_whole_of_it_has_room():
    """Its first chunk would fit; vLLM's full-prompt check keeps it out all the same."""
    one = batching(kv_blocks=20, max_num_batched_tokens=16)
    add(one, 160, 8)
    while one.running == [] or one.running[0].pending_tokens > 1:
        one.step()
    big = add(one, 12 * 16, 1)
    one.step()
    assert one.waiting == [big]


def test_a_head_that_does_not_fit_holds_up_those_behind_it():
    one = batching(kv_blocks=20)
    add(one, 160, 50)
    one.step()
    add(one, 300, 1)
    add(one, 16, 1)
    one.step()
    assert len(one.waiting) == 2


def test_the_latest_is_preempted_and_recomputes_what_it_had():
    one = batching(kv_blocks=8)
    old, young = add(one, 48, 60), add(one, 48, 60)
    while not young.preemptions:
        one.step()
    had = young.produced_tokens
    assert had > 0
    assert old.preemptions == 0
    assert (young.state, young.blocks, young.computed_tokens) == (SequenceState.WAITING, 0, 0)
    while young.state is SequenceState.WAITING:
        batch = one.schedule()
        if young in batch.tokens:
            assert batch.tokens[young] == young.prompt_tokens + had
            assert batch.prefill_tokens >= young.prompt_tokens + had
        one.complete(batch)
    assert finish(one)[-1] is young
    assert young.produced_tokens == 60


def test_nobody_is_admitted_in_a_step_that_preempts():
    one = batching(kv_blocks=8)
    add(one, 48, 60)
    young = add(one, 48, 60)
    small = None
    while not young.preemptions:
        if one.free_blocks == 0 and small is None:
            small = add(one, 1, 1)
        batch = one.schedule()
        assert not (batch.preempted and batch.admitted)
        one.complete(batch)


def test_under_the_priority_policy_the_least_important_waits_and_yields():
    one = batching(kv_blocks=8, is_priority=True)
    batch_job = add(one, 48, 60, priority=10)
    chat = add(one, 48, 60, priority=0)
    one.step()
    while not (batch_job.preemptions or chat.preemptions):
        one.step()
    assert (batch_job.preemptions, chat.preemptions) == (1, 0)


def test_a_victim_gives_back_what_it_was_scheduled_for():
    """The batch job comes first in the running order, and is pre-empted by the chat behind it."""
    one = batching(kv_blocks=8, is_priority=True)
    batch_job = add(one, 49, 60, priority=10)
    chat = add(one, 48, 60, priority=0)
    while True:
        batch = one.schedule()
        if batch.preempted:
            break
        one.complete(batch)
    assert batch.preempted == [batch_job]
    assert batch.tokens == {chat: 1}


@pytest.mark.parametrize(("is_priority", "order"), [(True, [2, 0, 1]), (False, [0, 1, 2])])
def test_priority_orders_the_queue_only_under_its_policy(is_priority, order):
    one = batching(max_num_seqs=1, is_priority=is_priority)
    sequences = [add(one, 10, 1, priority=priority) for priority in (5, 5, 1)]
    assert finish(one) == [sequences[index] for index in order]


def test_running_sequences_do_not_yield_to_more_important_ones_while_there_is_room():
    one = batching(max_num_seqs=1, is_priority=True)
    low = add(one, 10, 5, priority=9)
    one.step()
    high = add(one, 10, 1, priority=0)
    assert finish(one) == [low, high]


def test_a_sequence_without_output_ends_with_its_prompt():
    one = batching()
    sequence = add(one, 3000, 0)
    assert [one.step()[0] for _ in range(2)] == [[], [sequence]]
    assert sequence.state is SequenceState.ENDED
    assert sequence.produced_tokens == 0


def test_an_abort_while_the_step_runs_takes_effect_at_once():
    one = batching()
    gone, stays = add(one, 100, 5), add(one, 100, 5)
    batch = one.schedule()
    one.abort(gone)
    one.abort(gone)  # harmless
    assert one.used_blocks == stays.blocks
    assert one.complete(batch) == [stays]


def test_a_waiting_sequence_can_be_aborted():
    one = batching(max_num_seqs=1)
    add(one, 10, 2)
    one.step()
    waiting = add(one, 10, 2)
    one.abort(waiting)
    assert one.waiting == []


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (16 * 1000, 1)])
def test_what_could_never_run_is_not_taken(prompt, output):
    one = batching()
    with pytest.raises(ValueError, match="blocks does not fit 1000"):
        add(one, prompt, output)
    assert one.is_idle


def test_the_last_output_token_needs_no_room():
    one = batching()
    sequence = add(one, 16, 2)
    one.step()
    assert (sequence.blocks, one.kv_tokens) == (1, 16)


def test_a_step_takes_the_modelled_time():
    one = Batching(BatchLimits(kv_blocks=1000), StepTime(10, 0.1, 1, 0.01))
    add(one, 100, 2)
    first, second = one.schedule(), None
    one.complete(first)
    add(one, 50, 1)
    second = one.schedule()
    assert first.duration_s == pytest.approx(0.001 * (10 + 0.1 * 100 + 0.01 * 100))
    assert second.duration_s == pytest.approx(0.001 * (10 + 0.1 * 50 + 1 + 0.01 * 151))


def test_blocks_hold_sixteen_tokens():
    assert [blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]
