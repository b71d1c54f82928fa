"""What a request is: which pool manages it, whose it is, and what it is expected to cost."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from extproc.admission.service import Admission
from extproc.dialects import Endpoint
from extproc.dialects.include_usage import asking_for_usage
from extproc.domain.forecast import Budget, Forecast, foresee
from extproc.domain.habits import MIN_SAMPLES, Habits
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.domain.response import Ended, Foresight, UsageSource
from extproc.domain.tokens import Demand, Estimate
from extproc.estimation import Appraisal
from extproc.processor.messages import Head

TICKET = "x-forebay-ticket"
PRIORITY = ("x-forebay-priority", "x-llm-d-inference-objective", "x-gateway-inference-objective")
TENANT = ("x-forebay-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
MAX_WAIT_MS = ("x-forebay-max-wait-ms", "x-llm-d-inference-ttl")

_MAX_NAME_CHARS = 128


class Estimator(Protocol):
    """Reads and appraises bodies, off the event loop."""

    async def appraise(self, endpoint: Endpoint, body: bytes, content_encoding: str = "") -> Appraisal:
        """Return what a body asks for.

        Raises:
            BadRequest: the body cannot be understood.
        """
        ...


class Knowledge(Protocol):
    """What is known of a pool's tenants; answers at once."""

    def habits(self, model: str, tenant: str) -> Habits | None:
        """Return how a tenant uses a model; None where nothing is known of it."""
        ...

    def peers(self, model: str) -> Sequence[Habits]:
        """Return how others use it."""
        ...


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool as the gate needs it.

    Attributes:
        name: of the pool.
        admission: admits to it.
        max_wait_s: longest wait, seconds.
        budget: tells how outputs are budgeted at present.
        knowledge: what was learnt of its tenants.
        usage: where the true token counts come from.
        usage_sample: part of the responses that are read, where they come from those.
        asks_for_usage: make streams tell their usage where clients did not ask for it.
    """

    name: str
    admission: Admission
    max_wait_s: float
    budget: Callable[[], Budget]
    knowledge: Knowledge
    usage: UsageSource = UsageSource.ACCESS_LOG
    usage_sample: float = 1.0
    asks_for_usage: bool = False

    def draws_response(self) -> bool:
        """Draw whether a response shall be read."""
        return self.usage is UsageSource.STREAM and random.random() < self.usage_sample  # noqa: S311 - a sample

    def foresee(self, demand: Demand, model: str, flow: FlowKey) -> Forecast:
        """Return what to book for a demand."""
        habits = self.knowledge.habits(model, flow.tenant)
        is_known = habits is not None and habits.lessons >= MIN_SAMPLES
        peers = () if is_known else self.knowledge.peers(model)
        return foresee(demand, flow.priority_class.name, self.budget(), habits, peers)


@dataclass(frozen=True, slots=True)
class Identity:
    """How headers become a flow; see `HeaderSettings`.

    Attributes:
        classes: by name.
        default_class: for requests without a known class.
        trusts_priority: read the class from the client's header.
        trusts_tenant: read the tenant from the client's header.
        reads_max_wait: let a client shorten its wait.
    """

    classes: Mapping[str, PriorityClass]
    default_class: PriorityClass
    trusts_priority: bool = False
    trusts_tenant: bool = False
    reads_max_wait: bool = True

    def priority_class(self, headers: Mapping[str, str]) -> PriorityClass:
        """Return the class a request is in; an unknown name is as good as none."""
        name = _first(headers, PRIORITY) if self.trusts_priority else None
        return self.classes.get(name, self.default_class) if name else self.default_class

    def tenant(self, headers: Mapping[str, str]) -> str:
        """Return who shares fairly."""
        name = _first(headers, TENANT) if self.trusts_tenant else None
        return (name or "default")[:_MAX_NAME_CHARS]

    def max_wait_s(self, headers: Mapping[str, str], most_s: float) -> float:
        """Return the longest wait in seconds: the client's wish, never more than the pool's bound."""
        wish = _first(headers, MAX_WAIT_MS) if self.reads_max_wait else None
        if wish is None or not (wish.isascii() and wish.isdigit()):
            return most_s
        return min(most_s, float(wish) / 1000)  # not int, which balks at thousands of digits


@dataclass(frozen=True, slots=True)
class Passage:
    """A managed request on its way through the gate.

    Attributes:
        pool: manages it.
        request: as the queue knows it.
        forecast: what to book, and why.
        foresight: what travels with it.
        reads_response: its response shall be read.
        body: takes the place of its body, to ask for usage; None where the client's own goes on.
    """

    pool: Pool
    request: InferenceRequest
    forecast: Forecast
    foresight: Foresight | None = None
    reads_response: bool = False
    body: bytes | None = None

    @property
    def estimate(self) -> Estimate:
        """What to book."""
        return self.forecast.estimate

    @property
    def admission(self) -> Admission:
        """Who admits it."""
        return self.pool.admission


class Gate:
    """Decides what a request is.

    Args:
        estimator: reads bodies.
        pool_for: the pool that manages a model, or None.
        identity: reads class, tenant and wait from headers.
        on_ended: hears of each response that was read; returns at once and never raises.
    """

    def __init__(
        self,
        estimator: Estimator,
        pool_for: Callable[[str | None], Pool | None],
        identity: Identity,
        on_ended: Callable[[Ended], None] = lambda _: None,
    ) -> None:
        self._estimator = estimator
        self._pool_for = pool_for
        self.identity = identity
        self.on_ended = on_ended

    async def consider(self, endpoint: Endpoint, head: Head, body: bytes) -> Passage | None:
        """Return what is to be admitted, or None where no pool manages the model.

        Raises:
            BadRequest: the body cannot be understood.
        """
        headers = head.headers
        encoding = headers.get("content-encoding", "")
        appraisal = await self._estimator.appraise(endpoint, body, encoding)
        pool = self._pool_for(appraisal.body.model)
        if pool is None:
            return None
        flow = FlowKey(self.identity.tenant(headers), self.identity.priority_class(headers))
        request = InferenceRequest(
            id=_ticket(headers),
            model=(appraisal.body.model or pool.name)[:_MAX_NAME_CHARS],
            flow=flow,
            max_wait_s=self.identity.max_wait_s(headers, pool.max_wait_s),
        )
        forecast = pool.foresee(appraisal.demand, request.model, flow)
        reads = pool.draws_response()
        asks = pool.asks_for_usage and (reads or pool.usage is UsageSource.ACCESS_LOG)
        return Passage(
            pool,
            request,
            forecast,
            _foresight(request, appraisal.demand, forecast),
            reads_response=reads,
            body=asking_for_usage(endpoint, appraisal.body, body, encoding) if asks else None,
        )


def _foresight(request: InferenceRequest, demand: Demand, forecast: Forecast) -> Foresight:
    return Foresight(
        model=request.model,
        tenant=request.flow.tenant,
        counted_tokens=demand.prompt_tokens,
        prompt_tokens=forecast.estimate.prompt_tokens,
        output_tokens=forecast.estimate.output_tokens,
        max_output_tokens=forecast.limit,
        answers=demand.answers,
    )


def _ticket(headers: Mapping[str, str]) -> str:
    """Return the exchange's name in the cluster: Envoy's own, or one of ours where its chain gives none.

    A client's `x-request-id` will not do: it may name several requests at once.
    """
    ticket = headers.get(TICKET, "")
    return ticket if ticket and ticket.isascii() and " " not in ticket else str(uuid.uuid4())


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if headers.get(name)), None)
