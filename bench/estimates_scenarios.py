"""Three small worlds without engines, one question to the estimates each, for `bench/estimates.py`.

Answers end the moment they are admitted, so that what is measured is learning alone.
"""
# ruff: noqa: INP001, S311 - beside a script, whose draws must come out the same again

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from estimates_tenants import CLASSES, EPOCH_MS, INTERACTIVE_SHARE, TENANTS, Arrival, School, Tenant

CLOSE, SETTLED = 0.2, 0.75
NEWCOMER = Tenant("newcomer", 0.0, 1_000, 125)
POISONER = Tenant("poisoner", 0.0, 1_000, 125, max_tokens=None)

_PANEL = 200
_PER_STEP = 5  # requests of all tenants in a second


class Classroom:
    """Tenants whose answers are taught as they come."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._randoms: dict[str, Random] = {}
        self._taught = 0
        self._school = School(lambda: EPOCH_MS + 1_000 * (self._taught // _PER_STEP))

    async def hear(self, tenant: Tenant, *, times_longer: int = 1) -> None:
        """Foresee a request of a tenant, and learn from its answer."""
        random = self._randoms.setdefault(tenant.name, Random(f"{self._seed}:{tenant.name}"))
        priority_class = CLASSES[random.random() >= INTERACTIVE_SHARE]
        sizes = tenant.draw(random)
        sizes = replace(sizes, output_tokens=sizes.output_tokens * times_longer)
        arrival = Arrival(f"r{self._taught}", 0.0, tenant, priority_class, sizes)
        forecast = self._school.foresee(tenant, priority_class, sizes.counted_tokens)
        self._school.teach(arrival, forecast, 0.05 * sizes.output_tokens, None)
        self._taught += 1
        if self._taught % _PER_STEP == 0:
            await self._school.learning.step()

    async def settle(self) -> None:
        """Learn what came last as well."""
        await self._school.learning.step()

    def examine(self, tenant: Tenant) -> Answers:
        """Return what is foreseen of a fixed set of a tenant's requests; nothing is learnt from them."""
        random, prompts, outputs, errors = Random(f"{tenant.name}"), list[int](), list[int](), list[float]()
        for number in range(_PANEL):
            sizes = tenant.draw(random)
            priority_class = CLASSES[number / _PANEL >= INTERACTIVE_SHARE]
            estimate = self._school.foresee(tenant, priority_class, sizes.counted_tokens).estimate
            prompts.append(estimate.prompt_tokens)
            outputs.append(estimate.output_tokens)
            errors.append(estimate.prompt_tokens / sizes.prompt_tokens - 1)
        return Answers(prompts, outputs, errors)


@dataclass(frozen=True, slots=True)
class Answers:
    """What was foreseen of a set of requests, and how far off their prompts were."""

    prompts: Sequence[int]
    outputs: Sequence[int]
    prompt_errors: Sequence[float]


@dataclass(frozen=True, slots=True)
class Adaptation:
    """How a tenant's estimates followed a change of its habits.

    Attributes:
        requests: after the change until `SETTLED` of the estimates of the next 100 requests are within
            `CLOSE` of the new mean: passing by on the way does not count. None where that did not happen.
        course: mean estimate over the new mean, by requests after the change.
    """

    requests: int | None
    course: dict[int, float]


async def longer_outputs(
    seed: int, *, tenant: Tenant = TENANTS[0], before: int = 2_000, after: int = 1_000, every: int = 10
) -> Adaptation:
    """Let a tenant's outputs become four times longer."""
    room = Classroom(seed)
    for _ in range(before):
        await room.hear(tenant)
    changed = replace(tenant, output_tokens=4 * tenant.output_tokens)
    random = Random(0)
    wanted = statistics.fmean(changed.draw(random).output_tokens for _ in range(20_000))
    course: dict[int, float] = {}
    for number in range(every, after + 1, every):
        for _ in range(every):
            await room.hear(changed)
        course[number] = statistics.fmean(room.examine(changed).outputs) / wanted
    close, ahead = [abs(found - 1) <= CLOSE for found in course.values()], 100 // every
    settled = (
        number
        for index, number in enumerate(list(course)[:-ahead])
        if close[index] and statistics.fmean(close[index : index + ahead]) >= SETTLED
    )
    return Adaptation(next(settled, None), course)


@dataclass(frozen=True, slots=True)
class Poisoning:
    """What a poisoner changed.

    Attributes:
        changed: estimates of established tenants that differ from those without it.
        asked: estimates compared.
        newcomer: mean output foreseen of a tenant that nothing is known of, without and with the poisoner.
        poisoner: the same foreseen of the poisoner.
    """

    changed: int
    asked: int
    newcomer: tuple[float, float]
    poisoner: tuple[float, float]


async def poisoned(seed: int, *, tenants: Sequence[Tenant] = TENANTS, requests: int = 3_000) -> Poisoning:
    """Let one request in five be the poisoner's, every one with an output a hundred times longer."""
    seen = [await _estimates(seed, tenants, requests, times_longer) for times_longer in (None, 100)]
    clean, with_poison = seen
    pairs = [
        pair for t in tenants for pair in zip(clean[t.name].outputs, with_poison[t.name].outputs, strict=True)
    ]

    def means(tenant: Tenant) -> tuple[float, float]:
        return statistics.fmean(clean[tenant.name].outputs), statistics.fmean(
            with_poison[tenant.name].outputs
        )

    return Poisoning(sum(a != b for a, b in pairs), len(pairs), means(NEWCOMER), means(POISONER))


async def _estimates(
    seed: int, tenants: Sequence[Tenant], requests: int, times_longer: int | None
) -> Mapping[str, Answers]:
    room, random = Classroom(seed), Random(seed)
    for number in range(requests):
        if times_longer is not None and number % 4 == 0:
            await room.hear(POISONER, times_longer=times_longer)
        await room.hear(random.choices(tenants, [tenant.share for tenant in tenants])[0])
    await room.settle()
    return {tenant.name: room.examine(tenant) for tenant in (*tenants, NEWCOMER, POISONER)}


async def other_tokenizer(seed: int, *, ratio: float = 1.4, requests: int = 300) -> float:
    """Return how far off a prompt's estimate is once its engine's tokenizer is known: the median error."""
    room, tenant = Classroom(seed), replace(TENANTS[0], tokenizer_ratio=ratio)
    for _ in range(requests):
        await room.hear(tenant)
    return statistics.median(map(abs, room.examine(tenant).prompt_errors))
