"""The engine in time: one step of the batch after another, as long as there is work."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from extproc.simulator.batching import Batch, Batching
from extproc.simulator.generation import Answer, EngineStopped, Generation, Work
from extproc.simulator.sequence import BLOCK_TOKENS, Sequence
from extproc.simulator.settings import EngineSettings
from extproc.simulator.telemetry import Telemetry, Timeline
from extproc.simulator.text import OutputLengths

# A timer fires late by some milliseconds and the next step makes up for it, so that a busy engine keeps its
# modelled pace. More than this is a machine too slow for the load: the engine slows down and says so.
_CATCH_UP_S = 0.05


class EngineBusy(Exception):
    """A queue limit refuses the request.

    Attributes:
        reason: the limit, as vLLM's metric spells it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Peaks:
    """The most there ever was of each at the beginning of a step, after it was scheduled."""

    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0


class Engine:
    """Queues requests and runs them in steps of the modelled duration, divided by the speed.

    Attributes:
        batching: the scheduler's state.
        peaks: since the start.
        behind_s: seconds by which the clock ran ahead of the model for want of CPU.
        is_stopped: whether it steps no more.
    """

    def __init__(self, settings: EngineSettings, telemetry: Telemetry) -> None:
        self.batching = Batching(settings.limits, settings.step_time)
        self.peaks = Peaks()
        self.behind_s = 0.0
        self.is_stopped = False
        self._settings = settings
        self._telemetry = telemetry
        self._lengths = OutputLengths(
            mean_tokens=settings.mean_output_tokens, cv=settings.output_cv, seed=settings.seed
        )
        self._answers: dict[Sequence, Answer] = {}
        self._numbers = 0
        self._work = asyncio.Event()
        self._due_s = 0.0

    def begin(self, work: Work) -> Generation:
        """Queue a request.

        Raises:
            EngineBusy: a queue limit is reached.
            EngineStopped: it steps no more.
        """
        if self.is_stopped:
            raise EngineStopped
        self._refuse_when_full(work)
        now_s = asyncio.get_running_loop().time()
        generation = Generation(work, abort=self._abort)
        for prompt_tokens in work.prompts:
            for _ in range(work.answers):
                answer = self._answer(generation, prompt_tokens, now_s)
                self.batching.add(answer.sequence)
                self._answers[answer.sequence] = answer
                generation.answers.append(answer)
        self._work.set()
        return generation

    async def run(self) -> None:
        """Step while there is work, until cancelled."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time()
        try:
            while True:
                while self.batching.is_idle:
                    self._work.clear()
                    await self._work.wait()
                    self._due_s = loop.time()
                await self.step()
        finally:
            self.stop()  # nobody may wait for a step that never comes

    async def step(self) -> None:
        """Run one step of the batch: take its time, then hand out what it produced."""
        loop = asyncio.get_running_loop()
        batch = self.batching.schedule()
        started_s = max(self._due_s, loop.time() - _CATCH_UP_S)
        self.behind_s += started_s - self._due_s
        self._due_s = started_s + batch.duration_s / self._settings.speed
        self._note_scheduled(batch, loop.time())
        waiting = len(self.batching.waiting)
        await asyncio.sleep(self._due_s - loop.time())
        self._hand_out(self.batching.complete(batch), len(batch.preempted), loop.time())
        # vLLM's figure: a request that came during the step has not been seen by its scheduler yet.
        self._telemetry.scheduler(
            running=len(self.batching.running),
            waiting=min(waiting, len(self.batching.waiting)),
            kv_usage=self.batching.used_blocks / self.batching.limits.kv_blocks,
        )

    def stop(self) -> None:
        """Take nothing more, and tell everybody who waits for tokens that none will come."""
        self.is_stopped = True
        for generation in {answer.generation for answer in self._answers.values()}:
            generation.fail(EngineStopped())

    def state(self) -> dict[str, object]:
        """Return what `/sim/state` shows."""
        return {
            "running": len(self.batching.running),
            "waiting": len(self.batching.waiting),
            "kv_tokens": self.batching.kv_tokens,
            "kv_used_tokens": self.batching.used_blocks * BLOCK_TOKENS,
            "kv_capacity_tokens": self.batching.limits.kv_blocks * BLOCK_TOKENS,
            "peak": asdict(self.peaks),
            "behind_s": round(self.behind_s, 3),
        }

    @property
    def requests(self) -> int:
        """Sequences in the engine, waiting or running."""
        return len(self._answers)

    def _answer(self, generation: Generation, prompt_tokens: int, now_s: float) -> Answer:
        """Decide how long the next answer will be and what will end it."""
        self._numbers += 1
        work = generation.work
        room = self._settings.context_tokens - prompt_tokens
        limit = room if work.max_tokens is None else min(room, work.max_tokens)
        if work.ignore_eos:
            natural = limit
        elif work.output_tokens is not None:
            natural = work.output_tokens
        else:
            natural = self._lengths.draw(self._numbers)
        output_tokens = min(limit, max(natural, work.min_tokens, 1))
        reason = "length" if 0 < limit <= output_tokens else "stop"
        sequence = Sequence(prompt_tokens, output_tokens, priority=work.priority)
        return Answer(self._numbers, sequence, reason, Timeline(now_s), generation)

    def _refuse_when_full(self, work: Work) -> None:
        """Apply vLLM's two limits: requests in flight at all, and prompt tokens that are not yet through."""
        max_reqs = self._settings.max_num_queued_reqs
        max_tokens = self._settings.max_num_queued_tokens
        if max_reqs is not None and self.requests + len(work.prompts) * work.answers > max_reqs:
            self._refuse("max_num_queued_reqs")
        if max_tokens is not None and self._backlog_tokens() >= max_tokens:
            self._refuse("max_num_queued_tokens")

    def _refuse(self, reason: str) -> None:
        self._telemetry.rejected(reason)
        raise EngineBusy(reason)

    def _backlog_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self._answers if not one.produced_tokens)

    def _abort(self, generation: Generation) -> None:
        for answer in generation.answers:
            self.batching.abort(answer.sequence)
            self._answers.pop(answer.sequence, None)

    def _note_scheduled(self, batch: Batch, now_s: float) -> None:
        for sequence in batch.admitted:
            if not sequence.preemptions:
                self._answers[sequence].timeline.scheduled_s = now_s
        self.peaks.running = max(self.peaks.running, len(self.batching.running))
        self.peaks.waiting = max(self.peaks.waiting, len(self.batching.waiting))
        self.peaks.kv_tokens = max(self.peaks.kv_tokens, batch.kv_tokens)

    def _hand_out(self, advanced: list[Sequence], preemptions: int, now_s: float) -> None:
        """Book what a step produced and wake those who wait for it."""
        prompt_tokens = output_tokens = 0
        grown: dict[Generation, None] = {}  # a set that keeps the order of the batch
        for sequence in advanced:
            answer = self._answers[sequence]
            output_tokens += 1 if sequence.output_tokens else 0
            if sequence.produced_tokens <= 1:
                prompt_tokens += sequence.prompt_tokens
            self._book(answer, now_s)
            grown[answer.generation] = None
        self._telemetry.generated(output_tokens)
        self._telemetry.step(tokens=prompt_tokens + output_tokens, preemptions=preemptions)
        for generation in grown:
            generation.notify()

    def _book(self, answer: Answer, now_s: float) -> None:
        sequence, timeline = answer.sequence, answer.timeline
        if sequence.produced_tokens <= 1:
            timeline.first_token_s = now_s
            self._telemetry.first_token(sequence, timeline)
        else:
            self._telemetry.inter_token(now_s - timeline.last_token_s)
        timeline.last_token_s = now_s
        if sequence.produced_tokens == sequence.output_tokens:
            answer.is_over = True
            del self._answers[sequence]
            self._telemetry.finished(sequence, timeline, answer.finish_reason, now_s=now_s)
            if answer.generation.is_over:
                work = answer.generation.work
                self._telemetry.request(answers=work.answers, max_tokens=work.max_tokens)
