"""The metrics as Prometheus would read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extproc.admission.ports import Capacity, ClassBacklog, PoolState, Swept
from extproc.domain.outcome import Ending, Outcome, Refusal
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass
from extproc.ops.metrics import Metrics, PoolLabels

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
INTERACTIVE, BATCH = PriorityClass("interactive", 0), PriorityClass("batch", 10)
LABELS = PoolLabels("llama", "H100-SXM", (INTERACTIVE, BATCH))
STATE = PoolState(
    held_tokens=700,
    held_requests=7,
    capacity=Capacity(1000, 256),
    backlog={10: ClassBacklog(3, 90)},
    held_token_s=5000.0,
    replicas=2,
)


def request(model: str = "llama-3.3-70b") -> InferenceRequest:
    return InferenceRequest("r1", model, FlowKey("acme", INTERACTIVE), 30)


def samples(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return series, then values by labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    named = {k.rstrip("_"): v for k, v in labels.items()}
    return samples(metrics).get(name, {}).get(tuple(sorted(named.items())))


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of a pool to which everything has happened."""
    metrics = Metrics()
    pool = metrics.pool_observer(LABELS)
    pool.admitted(request(), 0.3)
    pool.shed(request(), Refusal.QUEUE_FULL)
    pool.withdrawn(request())
    pool.handed_over(request())
    pool.swept(Swept(leases=2, waiters=3))
    pool.saw(STATE)
    pool.compared("output", 1.2)
    pool.taught(is_guess=True)
    pool.calibrated(careful=2)
    metrics.ended("llama", "interactive", Ending.COMPLETE)
    metrics.unmanaged()
    metrics.refused_unread(Refusal.INVALID_BODY, BATCH)
    return metrics


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("llm_queue_wait_seconds_bucket", {"model", "class", "le"}),
        ("gpu_active_tokens_total", {"device"}),
        ("gpu_max_concurrent_tokens", {"device"}),
        ("forebay_inflight_tokens", {"pool"}),
        ("forebay_inflight_requests", {"pool"}),
        ("forebay_capacity_tokens", {"pool"}),
        ("forebay_queue_depth", {"pool", "class"}),
        ("forebay_queue_tokens", {"pool", "class"}),
        ("forebay_requests_total", {"pool", "class", "outcome"}),
        ("forebay_leases_reclaimed_total", {"pool", "cause"}),
        ("forebay_store_up", {"pool"}),
    ],
)
def test_the_public_series_have_exactly_their_labels(metrics, name, labels):
    found = samples(metrics)[name]
    assert found
    assert {frozenset(dict(key)) for key in found} == {frozenset(labels)}


def test_the_wait_lands_in_its_bucket(metrics):
    bucket = {"model": "llama-3.3-70b", "class_": "interactive"}
    assert value(metrics, "llm_queue_wait_seconds_bucket", **bucket, le="0.2") == 0
    assert value(metrics, "llm_queue_wait_seconds_bucket", **bucket, le="0.3") == 1
    assert value(metrics, "llm_queue_wait_seconds_count", **bucket) == 1


def test_figures_are_the_stores(metrics):
    assert value(metrics, "forebay_inflight_tokens", pool="llama") == 700
    assert value(metrics, "forebay_inflight_requests", pool="llama") == 7
    assert value(metrics, "forebay_capacity_tokens", pool="llama") == 1000
    assert value(metrics, "forebay_replicas", pool="llama") == 2
    assert value(metrics, "forebay_queue_depth", pool="llama", class_="batch") == 3
    assert value(metrics, "forebay_queue_tokens", pool="llama", class_="batch") == 90
    assert value(metrics, "forebay_queue_depth", pool="llama", class_="interactive") == 0
    assert value(metrics, "gpu_active_tokens_total", device="H100-SXM") == 5000
    assert value(metrics, "gpu_max_concurrent_tokens", device="H100-SXM") == 1000


def test_every_event_is_counted_once(metrics):
    counted = samples(metrics)["forebay_requests_total"]
    assert {dict(key)["outcome"]: count for key, count in counted.items()} == {
        "admitted": 1,
        "queue_full": 1,
        "withdrawn": 1,
        "handed_over": 1,
        "unmanaged": 1,
        "invalid_body": 1,
    }
    assert value(metrics, "forebay_leases_reclaimed_total", pool="llama", cause="lease_expired") == 2
    assert value(metrics, "forebay_leases_reclaimed_total", pool="llama", cause="waiter_expired") == 3
    ended = {"pool": "llama", "class_": "interactive", "ending": "complete"}
    assert value(metrics, "forebay_responses_total", **ended) == 1


def test_what_nobody_knows_is_absent():
    metrics = Metrics()
    pool = metrics.pool_observer(LABELS)
    assert "forebay_inflight_tokens" not in samples(metrics)
    pool.saw(PoolState(0, 0, None))
    pool.swept(Swept())
    found = samples(metrics)
    assert found["forebay_inflight_tokens"] == {(("pool", "llama"),): 0}
    for name in ("forebay_capacity_tokens", "gpu_max_concurrent_tokens", "gpu_active_tokens_total"):
        assert name not in found
    assert "forebay_leases_reclaimed_total" not in found
    pool.saw(PoolState(0, 0, Capacity(None, 5)))
    assert "forebay_capacity_tokens" not in samples(metrics)


def test_pools_on_one_kind_of_device_add_up():
    metrics = Metrics()
    for name in ("a", "b"):
        metrics.pool_observer(PoolLabels(name, "H100", (INTERACTIVE,))).saw(STATE)
    assert value(metrics, "gpu_active_tokens_total", device="H100") == 10_000
    assert value(metrics, "gpu_max_concurrent_tokens", device="H100") == 2_000


def test_the_counter_stands_still_while_the_store_is_away(metrics):
    """It would seem to grow by all of the store's count when that comes back."""
    pool = metrics.pool_observer(LABELS)
    pool.store_changed(is_up=False)
    pool.saw(PoolState(60, 1, Capacity(500, None), held_token_s=None))
    assert value(metrics, "gpu_active_tokens_total", device="H100-SXM") == 5000
    assert value(metrics, "forebay_inflight_tokens", pool="llama") == 60
    assert value(metrics, "forebay_store_up", pool="llama") == 0
    pool.store_changed(is_up=True)
    pool.saw(STATE)
    assert value(metrics, "forebay_store_up", pool="llama") == 1


def test_errors_of_estimates_are_counted_by_kind(metrics):
    assert value(metrics, "forebay_estimate_error_ratio_sum", pool="llama", kind="output") == 1.2
    assert value(metrics, "forebay_careful_estimates", pool="llama") == 2
    assert value(metrics, "forebay_lessons_total", pool="llama", source="size") == 1


def test_clients_cannot_grow_the_number_of_series():
    metrics = Metrics()
    pool = metrics.pool_observer(LABELS)
    for number in range(150):
        pool.admitted(request(f"model-{number}"), 0.01)
    pool.admitted(request("model-7"), 0.01)
    counts = samples(metrics)["llm_queue_wait_seconds_count"]
    by_model = {dict(key)["model"]: count for key, count in counts.items()}
    assert len(by_model) == 101
    assert (by_model["other"], by_model["model-7"]) == (50, 2)


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_page_lists_just_what_is_served(metrics):
    served = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        served[name] = (family.type, labels)
    assert documented() == served


@pytest.mark.parametrize("value_", [*Outcome, *Refusal, *Ending])
def test_the_page_names_every_value_of_the_closed_sets(value_):
    assert f"`{value_}`" in DOCS.read_text()
