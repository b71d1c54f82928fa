"""Thousands of interleavings of several replicas' calls, losses and deaths, on the real scripts.

The twin in memory goes through the same steps and must answer the same, to the last figure.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extproc.admission.ports import Capacity, Granted, Holding, Refused, Standing, Ticket
from extproc.domain.request import FlowKey, InferenceRequest, PriorityClass

SLOTS = st.integers(0, 2)
CLASSES = st.sampled_from([0, 1, 10])
TOKENS = st.integers(1, 120)
LIMITS = st.one_of(st.none(), st.integers(40, 300))
COUNTS = st.one_of(st.none(), st.integers(0, 5))
PICKS = st.integers(0, 10_000)


class QueueMachine(RuleBasedStateMachine):
    """Three replicas around one pool. The model knows who owns what, and by which attempt."""

    with_twin = True

    def __init__(self, drive_of: Any) -> None:
        super().__init__()
        self.drive = drive_of(with_twin=self.with_twin)
        self.names = ["a0", "b0", "c0"]
        self.owner: dict[str, str] = {}  # attempt -> replica that made it and lives
        self.request_of: dict[str, str] = {}  # every attempt ever made -> request
        self.current: dict[str, str] = {}  # request -> attempt that owns it, as long as it has not left
        self.tokens: dict[str, int] = {}  # request -> what its first attempt booked
        self.count = 0
        for name in self.names:
            self.drive.start(name)
        self.stored = self.drive.stored()
        self.grants_ran = False

    @initialize(tokens=LIMITS, requests=COUNTS)
    def know_the_capacity(self, tokens, requests):
        self.set_capacity(0, tokens, requests)

    # -- what replicas do

    @rule(
        slot=SLOTS, class_rank=CLASSES, tokens=TOKENS, may_wait=st.booleans(), most=st.sampled_from([3, 50])
    )
    def enqueue(self, slot, class_rank, tokens, may_wait, most):
        self.count += 1
        self._enqueue(slot, f"r{self.count}", class_rank, tokens, may_wait=may_wait, most=most)

    @precondition(lambda self: self.current)
    @rule(slot=SLOTS, pick=PICKS, tokens=TOKENS)
    def bring_again(self, slot, pick, tokens):
        request_id = self._pick(self.current, pick)
        held_before = request_id in self.stored.leases
        placement = self._enqueue(slot, request_id, 0, tokens)
        if request_id in self.stored.requests:
            assert isinstance(placement, Granted) == held_before, "an adoption moves nothing"

    @precondition(lambda self: self.owner)
    @rule(pick=PICKS)
    def ask_twice(self, pick):
        """The answer was lost, and the call is made again."""
        attempt = self._pick(self.owner, pick)
        holding = self.drive.holdings[0][attempt]
        replica = self.owner[attempt]
        self._settle(attempt, self.drive.enqueue(replica, holding, 50))

    @precondition(lambda self: self.request_of)
    @rule(picks=st.lists(PICKS, min_size=1, max_size=4), slot=SLOTS)
    def leave(self, picks, slot):
        """Whoever it is: an owner, one that was taken over, one that has left before."""
        attempts = [self._pick(self.request_of, pick) for pick in picks]
        self.drive.same(self.names[slot], "leave", [(self.request_of[a], a) for a in attempts])
        for attempt in attempts:
            self.owner.pop(attempt, None)
            if self.current.get(self.request_of[attempt]) == attempt:
                del self.current[self.request_of[attempt]]
        self.grants_ran = True

    @rule(slot=SLOTS, class_rank=CLASSES, tokens=TOKENS)
    def leave_before_being_heard(self, slot, class_rank, tokens):
        self.count += 1
        request_id, attempt = f"r{self.count}", f"{self.names[slot]}/{self.count}"
        self.drive.same(self.names[slot], "leave", [(request_id, attempt)])
        holding = self._holding(request_id, attempt, class_rank, tokens)
        assert isinstance(self.drive.enqueue(self.names[slot], holding, 50), Refused)
        self.grants_ran = True

    @rule(slot=SLOTS, keep=st.integers(1, 7), want=st.sampled_from([0, 50, 200]))
    def renew(self, slot, keep, want):
        """Renew all, or leave some out; leases may want more than they have."""
        attempts = [a for a, replica in self.owner.items() if replica == self.names[slot]]
        attempts = [a for n, a in enumerate(attempts) if keep > 5 or n % keep == 0]
        for holdings in self.drive.holdings:
            for attempt in attempts:
                holdings[attempt].wanted_tokens = want
        standings = self.drive.renew(self.names[slot], attempts)
        for attempt, standing in zip(attempts, standings, strict=True):
            if standing is Standing.TAKEN_OVER:
                del self.owner[attempt]
            elif standing is Standing.UNKNOWN:  # it was put back
                self.current[self.request_of[attempt]] = attempt
                self.tokens[self.request_of[attempt]] = self.drive.holdings[0][attempt].tokens
        self._growth_was_right(want, is_whole=Standing.UNKNOWN not in standings)

    @precondition(lambda self: self.owner)
    @rule(pick=PICKS)
    def grant_by_oneself(self, pick):
        """While the store was away; it learns of it by the next renewal."""
        attempt = self._pick(self.owner, pick)
        for holdings in self.drive.holdings:
            holdings[attempt].is_granted = True

    @rule(slot=SLOTS)
    def sweep(self, slot):
        self.drive.same(self.names[slot], "sweep")
        self.grants_ran = True

    @rule(slot=SLOTS, tokens=LIMITS, requests=COUNTS)
    def set_capacity(self, slot, tokens, requests):
        self.drive.same(self.names[slot], "set_capacity", Capacity(tokens, requests))
        self.grants_ran = True

    # -- what happens to them

    @rule(ms=st.sampled_from([1, 40, 999, 1_000, 2_500, 3_001, 7_000, 13_000]))
    def pass_time(self, ms):
        self.drive.now_ms += ms

    @rule(seconds=st.integers(1, 13), slot=SLOTS)
    def pass_time_with_sweeps(self, seconds, slot):
        for _ in range(seconds):
            self.drive.now_ms += 1_000
            self.drive.same(self.names[slot], "sweep")
        self.grants_ran = True

    @rule(slot=SLOTS)
    def die_and_start_anew(self, slot):
        self.owner = {a: replica for a, replica in self.owner.items() if replica != self.names[slot]}
        self.count += 1
        self.names[slot] = f"{self.names[slot][0]}{self.count}"
        self.drive.start(self.names[slot])

    @rule(is_deaf=st.booleans())
    def lose_announcements(self, is_deaf):
        for side in self.drive.sides:
            side.is_deaf = is_deaf

    # -- what must hold after every step

    @invariant()
    def laws_hold(self):
        before, self.stored = self.stored, self.drive.stored()
        now = self.stored
        self.drive.deliver()
        waiting = {name for name, _ in now.waiting}
        assert now.without_expiry <= {key for key in now.without_expiry if key.endswith(":capacity")}
        assert not waiting & now.leases, "nobody is in two places"
        assert now.requests == waiting | now.leases
        assert now.heartbeats == waiting
        assert now.reservations.keys() == now.leases
        assert all(now.reservations[name] == self.tokens[name] for name in now.leases)
        self._figures_follow(now)
        granted = now.leases - before.leases
        if self.grants_ran:
            self._grants_were_right(now, granted, dict(before.waiting))
        self.grants_ran = False

    def _growth_was_right(self, want, *, is_whole):
        """Nothing shrinks or grows beyond what it wants; growth exceeds no capacity, which putting back may."""
        now, grew = self.drive.stored(), False
        for name, tokens in now.reservations.items():
            if (before := self.tokens.get(name)) is not None and tokens != before:
                assert before < tokens <= want
                self.tokens[name], grew = tokens, True
        limit = now.capacity.tokens if now.capacity else None
        assert not grew or not is_whole or limit is None or now.held_tokens <= limit

    def _figures_follow(self, now):
        state = self.drive.same(self.names[0], "state") if not self.with_twin else self._same_state()
        assert (state.held_tokens, state.held_requests) == (now.held_tokens, len(now.leases))
        assert state.capacity == now.capacity
        waiting = sorted((rank >> 42, self.tokens[name]) for name, rank in now.waiting)
        backlog = sorted(
            (class_rank, backlog.requests, backlog.tokens) for class_rank, backlog in state.backlog.items()
        )
        classes = sorted({class_rank for class_rank, _ in waiting})
        tokens_of = {c: [tokens for other, tokens in waiting if other == c] for c in classes}
        assert backlog == [(c, len(tokens_of[c]), sum(tokens_of[c])) for c in classes]

    def _same_state(self):
        """The twin's floats may differ in the last digit, which is not what it is for."""
        ours, twin = (self.drive.run(s.queues[self.names[0]].state()) for s in self.drive.sides)
        assert ours.held_token_s == pytest.approx(twin.held_token_s, abs=2e-3)
        assert (ours.drain_tokens_per_s is None) == (twin.drain_tokens_per_s is None)
        if ours.drain_tokens_per_s is not None:
            assert ours.drain_tokens_per_s == pytest.approx(twin.drain_tokens_per_s, rel=1e-3, abs=2e-3)
        for figure in ("held_tokens", "held_requests", "capacity", "backlog", "replicas"):
            assert getattr(ours, figure) == getattr(twin, figure), figure
        return ours

    def _grants_were_right(self, now, granted, rank_before):
        if granted:
            assert not now.exceeds(), "used + mine <= capacity"
        if granted and now.waiting:
            ranks = [rank_before.get(name, 0) for name in granted]  # a newcomer's is checked by `_enqueue`
            assert max(ranks) < now.waiting[0][1], "the head is never overtaken"
        if now.waiting and now.capacity is not None and not self._is_frozen():
            head = now.waiting[0][0]
            assert now.exceeds(self.tokens[head], 1), "no free room while the head fits"

    def _is_frozen(self):
        return False

    # -- helpers

    def _pick(self, items, pick):
        keys = list(items)
        return keys[pick % len(keys)]

    def _holding(self, request_id, attempt, class_rank, tokens, *, may_wait=True):
        flow = FlowKey("t", PriorityClass(str(class_rank), class_rank))
        request = InferenceRequest(request_id, "m", flow, 30 if may_wait else 0)
        return Holding(Ticket(request, tokens, attempt))

    def _enqueue(self, slot, request_id, class_rank, tokens, *, may_wait=True, most=50):
        self.count += 1
        attempt = f"{self.names[slot]}/{self.count}"
        holding = self._holding(request_id, attempt, class_rank, tokens, may_wait=may_wait)
        placement = self.drive.enqueue(self.names[slot], holding, most)
        self._settle(attempt, placement)
        if not isinstance(placement, Refused):
            self.owner[attempt] = self.names[slot]
            self.request_of[attempt] = request_id
        return placement

    def _settle(self, attempt, placement):
        """Note what a placement means for who owns the request."""
        if isinstance(placement, Refused):
            return
        holding = self.drive.holdings[0][attempt]
        request_id = holding.ticket.request.id
        self.current[request_id] = attempt
        if request_id not in self.stored.requests:
            self.tokens[request_id] = holding.ticket.tokens
            after = self.drive.stored()
            if isinstance(placement, Granted):
                assert not after.exceeds()
                assert all(holding.rank < rank for _, rank in after.waiting), "nobody was passed over"

    def teardown(self):
        try:
            self._leave_all()
        finally:
            self.drive.close()

    def _leave_all(self):
        """Those that live leave, the dead expire; nothing may be left."""
        self.drive.same(
            self.names[0], "leave", [(request_id, attempt) for request_id, attempt in self.current.items()]
        )
        for _ in range(20):
            self.drive.now_ms += 1_000
            self.drive.same(self.names[0], "sweep")
        now = self.drive.stored()
        assert [*now.waiting, *now.leases, *now.reservations, *now.requests, *now.heartbeats] == []
        state = self.drive.run(self.drive.redis.queues[self.names[0]].state())
        assert (state.held_tokens, state.held_requests, state.backlog) == (0, 0, {})


class LossMachine(QueueMachine):
    """The same with a store that forgets everything now and then, which only a real one can."""

    with_twin = False

    def __init__(self, drive_of: Any) -> None:
        super().__init__(drive_of)
        self.lost_at_ms = 0

    @rule()
    def forget_everything(self):
        self.drive.redis.probe.flushall()
        self.drive.now_ms += 1
        self.lost_at_ms = self.drive.now_ms

    def _is_frozen(self):
        return True  # or not yet told of the loss; `grant_free` is held to the laws above


def run(machine, drive_of, *, runs, steps):
    run_state_machine_as_test(
        lambda: machine(drive_of),
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)  # shrinking a failure takes its time
def test_the_scripts_and_their_twin_agree_and_keep_the_laws(drive_of):
    run(QueueMachine, drive_of, runs=60, steps=30)


@pytest.mark.timeout(600)
def test_the_laws_hold_through_losses_of_the_store(drive_of):
    run(LossMachine, drive_of, runs=40, steps=30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("machine", "store_kind"), [(QueueMachine, "valkey"), (LossMachine, "redis")])
def test_the_laws_hold_in_thousands_of_interleavings(drive_of, machine, store_kind):
    run(machine, drive_of, runs=2_000, steps=40)
