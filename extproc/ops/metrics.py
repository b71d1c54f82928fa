"""The metrics, all on one registry; `docs/metrics.md` lists each series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extproc.admission.ports import PoolState, Swept
from extproc.domain.outcome import Ending, Outcome, Refusal
from extproc.domain.request import InferenceRequest, PriorityClass

_WAIT_BUCKETS_S = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.75,
    1,
    1.5,
    2,
    3,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
)
_ERROR_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2, 4, 10)
_MAX_MODELS = 100
OTHER = "other"
"""Label for what a request brings beyond the cap, so that no client can grow the number of series."""


@dataclass(frozen=True, slots=True)
class PoolLabels:
    """How a pool appears in the metrics.

    Attributes:
        pool: its name.
        device: label of the `gpu_*` series.
        classes: the configured classes, for the backlog.
    """

    pool: str
    device: str
    classes: Sequence[PriorityClass]


class Metrics:
    """The process' metrics. Give each pool its `pool_observer`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._cluster = _ClusterFigures()
        self.registry.register(self._cluster)
        self.queue_wait = Histogram(
            "llm_queue_wait_seconds",
            "Time from a request's arrival at the queue to its grant",
            ("model", "class"),
            buckets=_WAIT_BUCKETS_S,
            registry=self.registry,
        )
        self.requests = Counter(
            "forebay_requests",
            "Requests by how admission ended",
            ("pool", "class", "outcome"),
            registry=self.registry,
        )
        self.responses = Counter(
            "forebay_responses",
            "Managed responses by how they ended",
            ("pool", "class", "ending"),
            registry=self.registry,
        )
        self.reclaimed = Counter(
            "forebay_leases_reclaimed",
            "Holdings taken back because nobody renewed them",
            ("pool", "cause"),
            registry=self.registry,
        )
        self.estimate_error = Histogram(
            "forebay_estimate_error_ratio",
            "Tokens a response took over those expected when it was admitted",
            ("pool", "kind"),
            buckets=_ERROR_BUCKETS,
            registry=self.registry,
        )
        self.lessons = Counter(
            "forebay_lessons",
            "Responses that taught what requests take, by who told it",
            ("pool", "source"),
            registry=self.registry,
        )
        self.careful_estimates = Gauge(
            "forebay_careful_estimates",
            "Tenants and models whose estimates are careful because they were too low",
            ("pool",),
            registry=self.registry,
        )
        self.store_up = Gauge(
            "forebay_store_up", "1 while the shared queue decides, by pool", ("pool",), registry=self.registry
        )
        self._models: set[str] = set()
        # Finding a series by its labels costs more than counting in it; the labels are closed sets or capped.
        self.requests_of = cache(self.requests.labels)
        self.queue_wait_of = cache(self.queue_wait.labels)

    def pool_observer(self, labels: PoolLabels) -> PoolObserver:
        """Return the observer of one pool."""
        return PoolObserver(self, labels)

    def unmanaged(self) -> None:
        """A request passed untouched."""
        self.requests.labels("none", "none", Outcome.UNMANAGED).inc()

    def refused_unread(self, refusal: Refusal, priority_class: PriorityClass) -> None:
        """A request was refused before its pool was known."""
        self.requests.labels("none", priority_class.name, refusal).inc()

    def ended(self, pool: str, priority_class: str, ending: Ending) -> None:
        """A managed response is over."""
        self.responses.labels(pool, priority_class, ending).inc()

    def model(self, name: str) -> str:
        """Return a model as a label: itself, or `OTHER` beyond the cap."""
        if name in self._models:
            return name
        if len(self._models) >= _MAX_MODELS:
            return OTHER
        self._models.add(name)
        return name

    def saw(self, labels: PoolLabels, state: PoolState) -> None:
        """Keep a pool's figures for the next scrape."""
        self._cluster.saw(labels, state)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class PoolObserver:
    """Counts what happens in one pool; an `Observer` of admission, and one of learning."""

    def __init__(self, metrics: Metrics, labels: PoolLabels) -> None:
        self._metrics = metrics
        self._labels = labels
        metrics.store_up.labels(labels.pool).set(1)

    def admitted(self, request: InferenceRequest, wait_s: float) -> None:
        """A request may go on after `wait_s` in the queue."""
        model = self._metrics.model(request.model)
        self._metrics.queue_wait_of(model, request.flow.priority_class.name).observe(wait_s)
        self._count(request, Outcome.ADMITTED)

    def shed(self, request: InferenceRequest, refusal: Refusal) -> None:
        """A request was refused."""
        self._count(request, refusal)

    def withdrawn(self, request: InferenceRequest) -> None:
        """A request's client or Envoy went before it was admitted."""
        self._count(request, Outcome.WITHDRAWN)

    def handed_over(self, request: InferenceRequest) -> None:
        """A draining replica gave a waiter to whoever Envoy tries next."""
        self._count(request, Outcome.HANDED_OVER)

    def swept(self, swept: Swept) -> None:
        """A sweep took something back."""
        for cause, number in (("lease_expired", swept.leases), ("waiter_expired", swept.waiters)):
            if number:
                self._metrics.reclaimed.labels(self._labels.pool, cause).inc(number)

    def saw(self, state: PoolState) -> None:
        """The pool's figures were read."""
        self._metrics.saw(self._labels, state)

    def store_changed(self, *, is_up: bool) -> None:
        """The shared store was lost, or is back."""
        self._metrics.store_up.labels(self._labels.pool).set(int(is_up))

    def compared(self, kind: str, ratio: float) -> None:
        """A response took `ratio` times the tokens expected of its `kind`."""
        self._metrics.estimate_error.labels(self._labels.pool, kind).observe(ratio)

    def taught(self, *, is_guess: bool) -> None:
        """A response taught what it took."""
        self._metrics.lessons.labels(self._labels.pool, "size" if is_guess else "engine").inc()

    def calibrated(self, *, careful: int) -> None:
        """Of so many tenants and models estimates are careful."""
        self._metrics.careful_estimates.labels(self._labels.pool).set(careful)

    def _count(self, request: InferenceRequest, outcome: Outcome | Refusal) -> None:
        self._metrics.requests_of(self._labels.pool, request.flow.priority_class.name, outcome).inc()


class _ClusterFigures(Collector):
    """The cluster's figures, as Redis had them when they were last read; the same from every replica.

    While Redis is away they are this replica's own, but for the counter, which stands still: its return from
    another's count would be taken for an increase by all that Redis had counted.
    """

    def __init__(self) -> None:
        self._states: dict[str, tuple[PoolLabels, PoolState]] = {}
        self._token_s: dict[str, float] = {}

    def saw(self, labels: PoolLabels, state: PoolState) -> None:
        self._states[labels.pool] = (labels, state)
        if state.held_token_s is not None:
            self._token_s[labels.pool] = state.held_token_s

    def collect(self) -> Iterator[Metric]:
        seen = list(self._states.values())
        yield _gauge(
            "forebay_inflight_tokens",
            "Tokens held in the cluster",
            ((labels.pool, s.held_tokens) for labels, s in seen),
        )
        yield _gauge(
            "forebay_inflight_requests",
            "Requests held in the cluster",
            ((labels.pool, s.held_requests) for labels, s in seen),
        )
        yield _gauge(
            "forebay_capacity_tokens",
            "Tokens that may be held; absent where only requests are counted",
            (
                (labels.pool, s.capacity.tokens)
                for labels, s in seen
                if s.capacity and s.capacity.tokens is not None
            ),
        )
        yield _gauge("forebay_replicas", "Replicas alive", ((labels.pool, s.replicas) for labels, s in seen))
        yield from self._backlog(seen)
        yield from self._devices(seen)

    @staticmethod
    def _backlog(seen: Iterable[tuple[PoolLabels, PoolState]]) -> Iterator[Metric]:
        depth = GaugeMetricFamily("forebay_queue_depth", "Requests that wait", labels=("pool", "class"))
        tokens = GaugeMetricFamily(
            "forebay_queue_tokens", "Tokens of the requests that wait", labels=("pool", "class")
        )
        for labels, state in seen:
            for priority_class in labels.classes:
                backlog = state.backlog.get(priority_class.rank)
                depth.add_metric((labels.pool, priority_class.name), backlog.requests if backlog else 0)
                tokens.add_metric((labels.pool, priority_class.name), backlog.tokens if backlog else 0)
        yield depth
        yield tokens

    def _devices(self, seen: Iterable[tuple[PoolLabels, PoolState]]) -> Iterator[Metric]:
        active: dict[str, float] = {}
        most: dict[str, float] = {}
        for labels, state in seen:
            if labels.pool in self._token_s:
                active[labels.device] = active.get(labels.device, 0.0) + self._token_s[labels.pool]
            if state.capacity and state.capacity.tokens is not None:
                most[labels.device] = most.get(labels.device, 0.0) + state.capacity.tokens
        counter = CounterMetricFamily(
            "gpu_active_tokens",
            "Token-seconds held: its rate is the mean of tokens active",
            labels=("device",),
        )
        gauge = GaugeMetricFamily("gpu_max_concurrent_tokens", "Tokens that may be held", labels=("device",))
        for family, values in ((counter, active), (gauge, most)):
            _fill(family, values)
        yield counter
        yield gauge


def _fill(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> None:
    for device, value in values.items():
        family.add_metric((device,), value)


def _gauge(name: str, text: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=("pool",))
    for pool, value in values:
        family.add_metric((pool,), value)
    return family
