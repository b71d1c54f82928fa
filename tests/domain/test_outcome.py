from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.domain.outcome import MAX_RETRY_AFTER_S, STATUS, Outcome, Refusal, Shedding, retry_after_s

jitters = st.floats(0, 1, exclude_max=True)


def test_every_refusal_has_the_status_of_the_contract():
    by_status = {status: {r.value for r in Refusal if STATUS[r] == status} for status in STATUS.values()}
    assert by_status == {
        400: {"invalid_body"},
        413: {"never_fits", "body_too_large"},
        429: {
            "queue_full",
            "tenant_queue_full",
            "wait_timeout",
            "slo_unreachable",
            "not_queued",
        },
        503: {"no_backends", "store_unavailable", "draining"},
    }


def test_no_refusal_shares_its_name_with_an_outcome():
    assert not {r.value for r in Refusal} & {o.value for o in Outcome}


def test_a_shedding_has_its_refusals_status():
    assert Shedding(Refusal.QUEUE_FULL, "full").status == 429


@given(st.floats(0, 1e12), st.none() | st.floats(0.001, 1e9), jitters)
def test_a_time_to_come_back_is_between_one_second_and_the_bound(ahead, drain, jitter):
    assert 1 <= retry_after_s(ahead, drain, jitter=jitter) <= MAX_RETRY_AFTER_S


@given(st.floats(1, 1e6), st.floats(1, 1e6), jitters)
def test_nobody_is_asked_back_before_the_way_is_free(ahead, drain, jitter):
    seconds = retry_after_s(ahead, drain, jitter=jitter)
    assert seconds >= min(ahead / drain, MAX_RETRY_AFTER_S / 1.5)


def test_those_refused_together_do_not_come_back_together():
    """Even where all would be told the longest time."""
    for ahead in (5_000, 20_000, 10_000_000):
        times = {retry_after_s(ahead, 1_000, jitter=n / 100) for n in range(100)}
        assert len(times) >= 3
