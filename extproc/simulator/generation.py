"""A request inside the engine: what it asked for, and its answers as they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from extproc.simulator.sequence import Sequence
from extproc.simulator.telemetry import Timeline


class EngineStopped(Exception):
    """The engine stopped before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one request asks of the engine.

    Attributes:
        prompts: tokens of each prompt.
        answers: answers per prompt.
        max_tokens: limit of one answer, as far as the context allows; None is the context's; 0 generates
            nothing (embeddings, scores).
        min_tokens: an answer does not end by itself before.
        ignore_eos: an answer does not end by itself at all.
        output_tokens: where an answer ends by itself; None draws it from the engine's distribution.
        priority: lower is served first under the priority policy.
    """

    prompts: tuple[int, ...]
    answers: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    output_tokens: int | None = None
    priority: int = 0


class Piece(NamedTuple):
    """Tokens of one answer that came since the piece before.

    Attributes:
        answer: index of the answer.
        start: position of the first of these tokens in the answer.
        tokens: how many they are; more than one when the reader was slower than the engine.
        finish_reason: `stop` or `length` with the last piece, else None.
    """

    answer: int
    start: int
    tokens: int
    finish_reason: str | None


@dataclass(slots=True, eq=False)
class Answer:
    """One answer of a request.

    Attributes:
        number: of the engine's answers, in order of arrival; it decides what the text says.
        sequence: the sequence in the batch.
        finish_reason: what its end will be called.
        timeline: when it passed its stations.
        generation: the request it belongs to.
        fetched_tokens: tokens already handed to the reader.
        is_over: whether its last token was produced.
    """

    number: int
    sequence: Sequence
    finish_reason: str
    timeline: Timeline
    generation: Generation
    fetched_tokens: int = 0
    is_over: bool = False


class Generation:
    """The answers to one request while they are made; leaving its ``with`` early aborts them.

    One task reads it, either piece by piece or waiting for the end.
    """

    def __init__(self, work: Work, *, abort: Callable[[Generation], None]) -> None:
        self.work = work
        self.answers: list[Answer] = []
        self._abort = abort
        self._waiter: asyncio.Future[None] | None = None
        self._wants_pieces = False
        self._fault: EngineStopped | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if not self.is_over:
            self._abort(self)

    @property
    def is_over(self) -> bool:
        """Whether every answer is complete."""
        return all(answer.is_over for answer in self.answers)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once however many answers it gets."""
        return sum(self.work.prompts)

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far, fetched or not."""
        return sum(answer.sequence.produced_tokens for answer in self.answers)

    async def pieces(self) -> list[Piece]:
        """Wait for tokens; return those that came since the last call, or nothing when all were returned.

        Raises:
            EngineStopped: no more will come.
        """
        self._wants_pieces = True
        while not (fresh := self._take()) and not self.is_over:
            await self._wait()
        return fresh

    async def finished(self) -> None:
        """Wait until every answer is complete.

        Raises:
            EngineStopped: they never will be.
        """
        self._wants_pieces = False
        while not self.is_over:
            await self._wait()

    def notify(self) -> None:
        """Tell the reader that an answer grew; for the engine, once a step."""
        if self._wants_pieces or self.is_over:
            self._wake()

    def fail(self, fault: EngineStopped) -> None:
        """Tell the reader that no more tokens will come."""
        self._fault = fault
        self._wake()

    def _take(self) -> list[Piece]:
        fresh = []
        for index, answer in enumerate(self.answers):
            start, end = answer.fetched_tokens, answer.sequence.produced_tokens
            if end > start:
                answer.fetched_tokens = end
                reason = answer.finish_reason if answer.is_over else None
                fresh.append(Piece(index, start, end - start, reason))
        return fresh

    async def _wait(self) -> None:
        if self._fault is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._fault is not None:
            raise self._fault

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
