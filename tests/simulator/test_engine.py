"""The engine in virtual time: what takes how long, and what the metrics say of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from extproc.simulator.engine import Engine, EngineBusy
from extproc.simulator.generation import EngineStopped, Generation, Piece, Work
from extproc.simulator.settings import EngineSettings
from extproc.simulator.telemetry import Telemetry

PLAIN = {
    "step_base_ms": 10,
    "step_prefill_token_ms": 0.1,
    "step_decode_seq_ms": 1,
    "step_kv_token_ms": 0,
}

StartEngine = Callable[..., tuple[Engine, Telemetry]]


@pytest.fixture
async def start(no_task_left: None) -> AsyncIterator[StartEngine]:
    """`start(**settings)`: a stepping engine; a step is 10 ms + 0.1 a prompt token + 1 a decoding sequence."""
    tasks = []

    def engine(**fields) -> tuple[Engine, Telemetry]:
        settings = EngineSettings(**PLAIN | fields)
        telemetry = Telemetry(settings)
        engine = Engine(settings, telemetry)
        tasks.append(asyncio.create_task(engine.run()))
        return engine, telemetry

    yield engine
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def token_times(generation: Generation) -> list[float]:
    """Return when each piece came, seconds since now."""
    loop = asyncio.get_running_loop()
    begun, times = loop.time(), []
    with generation:
        while await generation.pieces():
            times.append(round(loop.time() - begun, 4))
    return times


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    labels = {"model_name": "llama-3.3-70b", "engine": "0"} | labels
    found = telemetry.registry.get_sample_value(f"vllm:{name}", labels)
    assert found is not None, name
    return found


def exactly(tokens: int, prompt: int = 100, **fields) -> Work:
    return Work((prompt,), output_tokens=tokens, **fields)


@pytest.mark.looptime
async def test_a_lone_request_takes_the_modelled_time(start):
    engine, _ = start()
    assert await token_times(engine.begin(exactly(3))) == [0.02, 0.031, 0.042]


@pytest.mark.looptime
async def test_the_modelled_time_is_divided_by_the_speed(start):
    engine, _ = start(speed=10.0)
    assert await token_times(engine.begin(exactly(3))) == [0.002, 0.0031, 0.0042]


@pytest.mark.looptime
async def test_a_long_prompt_takes_several_steps_and_slows_down_those_who_decode(start):
    engine, _ = start(max_num_batched_tokens=1000)
    reading = asyncio.create_task(token_times(engine.begin(exactly(4))))
    await asyncio.sleep(0.025)  # within the second step
    late = await token_times(engine.begin(exactly(1, prompt=1500)))
    # 1500 tokens: 999 beside one that decodes, then 501 beside it
    assert late == [pytest.approx(0.006 + (10 + 99.9 + 1 + 10 + 50.1 + 1) / 1000)]
    assert await reading == [0.02, 0.031, pytest.approx(0.1419), pytest.approx(0.203)]


@pytest.mark.looptime
async def test_who_finds_no_place_waits_and_the_metrics_tell_how_long(start):
    engine, telemetry = start(max_num_seqs=1)
    first = asyncio.create_task(token_times(engine.begin(exactly(2))))
    await asyncio.sleep(0.001)
    second = asyncio.create_task(token_times(engine.begin(exactly(2))))
    await asyncio.sleep(0.025)
    assert value(telemetry, "num_requests_waiting") == 0  # it came after the step had begun
    await first
    assert value(telemetry, "num_requests_waiting") == 1
    assert value(telemetry, "num_requests_waiting_by_reason", reason="capacity") == 1
    await second
    assert engine.peaks.waiting == 1
    assert value(telemetry, "request_queue_time_seconds_sum") == pytest.approx(0.03)
    assert value(telemetry, "time_to_first_token_seconds_sum") == pytest.approx(0.02 + 0.05)
    assert value(telemetry, "request_prefill_time_seconds_sum") == pytest.approx(2 * 0.02)
    assert value(telemetry, "request_decode_time_seconds_sum") == pytest.approx(2 * 0.011)
    assert value(telemetry, "request_inference_time_seconds_sum") == pytest.approx(2 * 0.031)
    assert value(telemetry, "e2e_request_latency_seconds_sum") == pytest.approx(0.031 + 0.061)
    assert value(telemetry, "inter_token_latency_seconds_sum") == pytest.approx(2 * 0.011)
    assert value(telemetry, "inter_token_latency_seconds_count") == 2


@pytest.mark.looptime
async def test_token_counters_count_each_token_once(start):
    engine, telemetry = start()
    await token_times(engine.begin(Work((100, 50), answers=2, max_tokens=5, ignore_eos=True)))
    assert value(telemetry, "prompt_tokens_total") == 300  # vLLM counts a prompt for each of its answers
    assert value(telemetry, "generation_tokens_total") == 20
    assert value(telemetry, "iteration_tokens_total_sum") == 320
    assert value(telemetry, "request_success_total", finished_reason="length") == 4
    assert value(telemetry, "request_params_n_sum") == 2
    assert value(telemetry, "request_params_n_count") == 1


@pytest.mark.looptime
async def test_an_aborted_request_is_in_the_token_counters_and_in_no_request_series(start):
    """As in vLLM; see its issue 55634."""
    engine, telemetry = start()
    with engine.begin(exactly(100)) as generation:
        await generation.pieces()
    await asyncio.sleep(1)
    assert engine.batching.is_idle
    assert value(telemetry, "num_requests_running") == 0
    assert value(telemetry, "kv_cache_usage_perc") == 0
    assert value(telemetry, "prompt_tokens_total") == 100
    assert value(telemetry, "generation_tokens_total") == 1
    assert value(telemetry, "request_success_total", finished_reason="abort") == 0
    assert value(telemetry, "e2e_request_latency_seconds_count") == 0


@pytest.mark.looptime
async def test_preempted_sequences_are_counted_and_still_finish(start):
    engine, telemetry = start(kv_tokens=161)
    times = await asyncio.gather(*(token_times(engine.begin(exactly(60, prompt=40))) for _ in range(2)))
    assert [len(arrivals) for arrivals in times] == [60, 60]
    assert value(telemetry, "num_preemptions_total") >= 1
    assert value(telemetry, "request_num_preemptions_sum") == value(telemetry, "num_preemptions_total")
    assert value(telemetry, "prompt_tokens_total") == 80  # recomputing does not count again
    assert engine.peaks.kv_tokens <= engine.batching.limits.kv_blocks * 16


@pytest.mark.looptime
async def test_usage_of_the_cache_is_a_share_of_the_blocks_that_can_be_used(start):
    engine, telemetry = start(kv_tokens=1616)
    with engine.begin(exactly(100, prompt=160)) as generation:
        await generation.pieces()
        await asyncio.sleep(0)
        assert value(telemetry, "kv_cache_usage_perc") == pytest.approx(10 / 100)


@pytest.mark.looptime
async def test_a_slow_reader_gets_several_tokens_in_one_piece(start):
    engine, _ = start()
    with engine.begin(exactly(5)) as generation:
        assert await generation.pieces() == [Piece(0, 0, 1, None)]
        await asyncio.sleep(1)
        assert await generation.pieces() == [Piece(0, 1, 4, "stop")]
        assert await generation.pieces() == []


@pytest.mark.looptime
async def test_an_answer_that_reaches_its_limit_says_so(start):
    engine, _ = start()
    works = [
        exactly(5, max_tokens=3),
        exactly(3, max_tokens=5),
        exactly(1, max_tokens=5, min_tokens=4),
        Work((100,), max_tokens=6, ignore_eos=True),
    ]
    generations = [engine.begin(work) for work in works]
    for generation in generations:
        await generation.finished()
    ends = [(generation.output_tokens, generation.answers[0].finish_reason) for generation in generations]
    assert ends == [(3, "length"), (3, "stop"), (4, "stop"), (6, "length")]


@pytest.mark.looptime
async def test_without_a_limit_the_context_is_the_limit(start):
    engine, _ = start(max_model_len=120)
    generation = engine.begin(Work((100,), ignore_eos=True))
    await generation.finished()
    assert (generation.output_tokens, generation.answers[0].finish_reason) == (20, "length")


@pytest.mark.looptime
async def test_lengths_are_drawn_in_order_of_arrival(start):
    lengths = []
    for _ in range(2):
        engine, _ = start(seed=5, mean_output_tokens=20)
        generations = [engine.begin(Work((10,))) for _ in range(5)]
        for generation in generations:
            await generation.finished()
        lengths.append([generation.output_tokens for generation in generations])
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 1


@pytest.mark.looptime
async def test_prompts_that_generate_nothing_end_when_they_are_computed(start):
    engine, telemetry = start()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await engine.begin(Work((100, 200), max_tokens=0)).finished()
    assert loop.time() - begun == pytest.approx(0.04)
    assert value(telemetry, "prompt_tokens_total") == 300
    assert value(telemetry, "generation_tokens_total") == 0


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_num_queued_reqs": 2}, "max_num_queued_reqs"),
        ({"max_num_queued_tokens": 150}, "max_num_queued_tokens"),
    ],
)
async def test_a_full_queue_refuses_until_there_is_room_again(start, limit, reason):
    """Both limits count what is in flight, as vLLM does: prompts that are through do not weigh as tokens."""
    engine, telemetry = start(max_num_seqs=1, **limit)
    generations = [engine.begin(exactly(1)) for _ in range(2)]
    with pytest.raises(EngineBusy) as refusal:
        engine.begin(exactly(1))
    assert refusal.value.reason == reason
    rejections = telemetry.registry.get_sample_value(
        "vllm:admission_rejections_total", {"model_name": "llama-3.3-70b", "reason": reason}
    )
    assert rejections == 1
    await generations[0].finished()
    await engine.begin(exactly(1)).finished()


@pytest.mark.looptime
async def test_whoever_waits_when_the_engine_stops_is_told(start):
    engine, _ = start(max_num_seqs=1)
    reader = asyncio.create_task(engine.begin(exactly(100)).finished())
    waiter = asyncio.create_task(engine.begin(exactly(100)).pieces())
    await asyncio.sleep(0.1)
    engine.stop()
    for task in (reader, waiter):
        with pytest.raises(EngineStopped):
            await task
    with pytest.raises(EngineStopped):
        engine.begin(exactly(1))


@pytest.mark.looptime
async def test_an_idle_engine_does_not_make_up_for_lost_time(start):
    engine, _ = start()
    await token_times(engine.begin(exactly(1)))
    await asyncio.sleep(100)
    assert await token_times(engine.begin(exactly(1))) == [0.02]
    assert engine.behind_s == 0


async def test_a_machine_too_slow_is_told_of(start):
    """On the real clock: the loop stands still for a while in the middle of many short steps."""
    engine, _ = start(speed=100)
    with engine.begin(exactly(1000)) as generation:
        await generation.pieces()
        time.sleep(0.15)  # noqa: ASYNC251 - the stall is the point
        await generation.pieces()
        await generation.pieces()
    assert 0.05 < engine.behind_s < 5
