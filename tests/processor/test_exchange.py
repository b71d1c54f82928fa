"""One exchange without gRPC: Envoy's messages are scripted, the queue is real, time is virtual."""

from __future__ import annotations

import asyncio

import pytest
from admission.world import World
from processor.stage import (
    Stage,
    body,
    chat,
    headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    whole,
)
from structlog.testing import capture_logs

from extproc.admission.service import HandedOver
from extproc.domain.errors import ProtocolViolation

pytestmark = pytest.mark.looptime


@pytest.fixture
async def world():
    async with World().running() as world:
        yield world
        await settle()
        assert not world.store.entries, "something is held at the end"


@pytest.fixture
async def stage(world):
    return Stage(world)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def fill(world: World) -> asyncio.Task:
    """Hold most of the pool, so that 60 tokens more have no room."""
    task = world.ask("other", 60)
    await settle()
    return task


async def test_the_recommended_chain_is_one_message_and_a_stream_held_to_the_end(stage, world):
    envoy = stage.enter(whole(chat(), x_forebay_ticket="t-1"))
    reply = await envoy.hears()
    assert reply.kind == "request_body"
    assert reply.metadata == {
        "wait_ms": "0",
        "reserved_tokens": "60",
        "class": "interactive",
        "pool": "llama",
        "ticket": "t-1",
        "model": "llama-70b",
        "tenant": "default",
        "foresight": "10 10 50 50 1",
    }
    assert world.store.held_tokens == 60
    await settle()
    assert not envoy.task.done()
    await envoy.resets()
    await settle()
    assert world.store.held_tokens == 0


async def test_the_portable_chain_tells_the_client_by_response_headers(stage, world):
    envoy = stage.enter(headers(x_forebay_ticket="t-1", x_forebay_priority="batch"), body(chat()))
    assert (await envoy.hears()).kind == "request_headers"
    assert (await envoy.hears()).metadata["class"] == "batch"
    envoy.says(response_headers())
    reply = await envoy.hears()
    assert reply.kind == "response_headers"
    assert reply.headers == {
        "x-forebay-queue-wait-ms": "0",
        "x-forebay-reserved-tokens": "60",
        "x-forebay-class": "batch",
    }
    assert world.store.held_tokens == 60
    await envoy.half_closes()


async def test_every_message_of_a_response_is_answered_trailers_included(stage):
    envoy = stage.enter(headers(), body(chat(), is_last=False), request_trailers(), response_headers())
    envoy.says(response_body(b"data: x"))
    envoy.says(response_body(b"", is_last=True))
    envoy.says(response_trailers())
    kinds = [(await envoy.hears()).kind for _ in range(7)]
    assert kinds == [
        "request_headers",
        "request_body",
        "request_trailers",
        "response_headers",
        "response_body",
        "response_body",
        "response_trailers",
    ]
    await envoy.half_closes()


async def test_a_request_without_a_body_passes_untouched(stage, world):
    envoy = stage.enter(headers(path="/v1/models", is_last=True))
    reply = await envoy.hears()
    assert (reply.kind, reply.metadata) == ("request_headers", {})
    await asyncio.wait_for(envoy.task, 5)
    assert world.heard.words == []


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/v1/models", b"{}"),
        ("/v1/chat/completions", chat(model="nobody's")),
        ("/upload", b"\xff\xfe not JSON"),
    ],
    ids=["path", "model", "bytes"],
)
@pytest.mark.parametrize("ticket", ["t-1", None])
async def test_what_no_pool_manages_passes_untouched_with_consent(stage, path, data, ticket):
    named = {"x_forebay_ticket": ticket} if ticket else {}
    envoy = stage.enter(whole(data, path=path, **named))
    reply = await envoy.hears()
    assert (reply.kind, reply.metadata, reply.headers) == ("request_body", {"ticket": ticket or "-"}, {})
    await asyncio.wait_for(envoy.task, 5)
    assert stage.observer.words == ["unmanaged"]


async def test_a_stream_that_ends_before_any_message_is_no_fault(stage):
    envoy = stage.enter()
    await envoy.half_closes()
    assert envoy.has_heard_nothing


@pytest.mark.parametrize(
    "script",
    [[b"\x50\x01"], [b"\xff\xff"], [body(chat())], [headers(), b""]],
    ids=["unknown kind", "no protobuf", "body without head", "empty after headers"],
)
async def test_messages_out_of_place_end_the_exchange_by_a_violation(stage, script):
    envoy = stage.enter(*script)
    with pytest.raises(ProtocolViolation):
        await envoy.task


async def test_a_violation_during_a_response_gives_back_what_was_held(stage, world):
    envoy = stage.enter(whole(chat()), b"\x50\x01")
    with pytest.raises(ProtocolViolation):
        await envoy.task
    await settle()
    assert not world.store.entries


REFUSALS = {
    "invalid_body": (400, whole(b"{")),
    "never_fits": (413, whole(chat(400, n=5))),
    "not_queued": (429, whole(chat(), x_forebay_max_wait_ms="0")),
    "wait_timeout": (429, whole(chat(), x_forebay_max_wait_ms="1500")),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_a_refusal_answers_in_place_and_names_its_reason(stage, world, reason):
    other = await fill(world)
    status, message = REFUSALS[reason]
    envoy = stage.enter(message)
    reply = await envoy.hears()
    assert (reply.kind, reply.status) == ("immediate_response", status)
    assert reply.part.details == f"forebay_{reason}"
    assert reply.error["error"]["code"] == reason
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-forebay-reason"] == reason
    assert reply.headers["x-forebay-class"] == "interactive"
    assert ("retry-after" in reply.headers) == (status == 429)
    assert int(reply.headers["x-forebay-queue-wait-ms"]) == (1500 if reason == "wait_timeout" else 0)
    assert int(reply.headers["x-forebay-reserved-tokens"]) >= (0 if reason == "invalid_body" else 60)
    await asyncio.wait_for(envoy.task, 5)
    await world.end(other)


async def test_a_body_beyond_the_limit_is_told_as_such(world):
    from extproc.domain.errors import BodyTooLarge

    class Picky:
        async def appraise(self, *_):
            raise BodyTooLarge("more than 1 MiB")

    stage = Stage(world, estimator=Picky())
    reply = await stage.enter(whole(chat(), x_forebay_priority="batch")).hears()
    assert (reply.status, reply.headers["x-forebay-reason"]) == (413, "body_too_large")
    assert stage.observer.words == ["body_too_large batch"]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/v1/chat/completions", {"error"}),
        ("/v1/messages", {"type", "error"}),
        ("/generate", {"error", "error_type"}),
    ],
)
async def test_a_refusal_speaks_the_dialect_of_the_path(stage, path, keys):
    reply = await stage.enter(whole(b"[]", path=path)).hears()
    assert reply.status == 400
    assert set(reply.error) == keys


@pytest.mark.parametrize("max_wait_ms", ["9" * 400, "9" * 5000, "\u0663", "-5", "1e3", "soon"])
async def test_a_wish_for_a_wait_that_is_no_number_of_ours_is_the_pools(stage, world, max_wait_ms):
    other = await fill(world)
    envoy = stage.enter(whole(chat(), x_forebay_max_wait_ms=max_wait_ms))
    await asyncio.sleep(29)
    assert envoy.has_heard_nothing
    await asyncio.sleep(2)
    assert (await envoy.hears()).headers["x-forebay-reason"] == "wait_timeout"
    await world.end(other)


# --- leaving --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment_s", [0, 0.5, 1.5, 2.5, 3.5, 4.5])
@pytest.mark.parametrize("is_full", [True, False])
async def test_a_reset_at_any_moment_leaves_nothing_behind(stage, world, moment_s, is_full):
    """Headers, estimate, queue, answer, response: each takes a second here."""
    other = await fill(world) if is_full else None
    stage.estimator.delay_s = 1
    envoy = stage.enter()
    envoy.delay_s = 1
    envoy.says(headers())
    envoy.says(body(chat()))
    await asyncio.sleep(moment_s)
    await envoy.resets()
    assert envoy.task.cancelled()
    await settle()
    assert set(world.store.entries) == ({"other"} if is_full else set())
    if other is not None:
        await world.end(other)


async def test_a_draining_replica_hands_a_waiter_over_without_an_answer(stage, world):
    other = await fill(world)
    envoy = stage.enter(whole(chat(), x_forebay_ticket="t-1"))
    await settle()
    world.admission.drain(can_hand_over=True)
    with pytest.raises(HandedOver):
        await envoy.task
    assert envoy.has_heard_nothing
    assert "t-1" in world.store.entries  # the place is left for the next replica
    await world.queue.leave([("t-1", world.store.entries["t-1"].attempt)])
    await world.end(other)


@pytest.mark.parametrize(
    "script",
    [[headers(), body(chat())], [whole(chat(model="llama-70b", user="x" * 60_000))]],
    ids=["headers were answered", "body beyond Envoy's replay buffer"],
)
async def test_a_waiter_that_envoy_could_not_replay_is_never_handed_over(stage, world, script):
    other = await fill(world)
    envoy = stage.enter(*script)
    await settle()
    world.admission.drain(can_hand_over=True)
    await settle()
    assert not envoy.task.done()
    await envoy.resets()
    await world.end(other)


# --- what is told ---------------------------------------------------------------------------------------


async def test_an_exchange_leaves_one_line_without_a_word_of_the_prompt(stage):
    with capture_logs() as lines:
        envoy = stage.enter(whole(chat(), x_forebay_ticket="t-1", x_forebay_tenant="acme"))
        await envoy.hears()
        await envoy.resets()
    [line] = lines
    assert "secret" not in repr(line)
    assert line == {
        "event": "request",
        "log_level": "info",
        "outcome": "admitted",
        "request_id": "t-1",
        "pool": "llama",
        "model": "llama-70b",
        "tenant": "acme",
        "priority_class": "interactive",
        "prompt_tokens": 10,
        "output_tokens": 50,
        "wait_ms": 0,
        "duration_ms": 0,
    }


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([whole(chat(), path="/v1/models")], "unmanaged"),
        ([whole(b"{")], "invalid_body"),
        ([whole(chat(400, n=5))], "never_fits"),
    ],
)
async def test_every_outcome_has_its_line(stage, script, outcome):
    with capture_logs() as lines:
        envoy = stage.enter(*script)
        await asyncio.wait_for(envoy.task, 5)
    assert [line["outcome"] for line in lines if line["event"] == "request"] == [outcome]


async def test_a_client_that_goes_while_it_waits_is_told_as_withdrawn(stage, world):
    other = await fill(world)
    with capture_logs() as lines:
        envoy = stage.enter(whole(chat()))
        await asyncio.sleep(2)
        await envoy.resets()
    assert [(line["outcome"], line["wait_ms"]) for line in lines] == [("withdrawn", 2000)]
    await world.end(other)


async def test_handing_over_is_told_as_such(stage, world):
    other = await fill(world)
    with capture_logs() as lines:
        envoy = stage.enter(whole(chat()))
        await settle()
        world.admission.drain(can_hand_over=True)
        with pytest.raises(HandedOver):
            await envoy.task
    assert [line["outcome"] for line in lines] == ["handed_over"]
    for request_id, entry in list(world.store.entries.items()):
        if request_id != "other":
            await world.queue.leave([(request_id, entry.attempt)])
    await world.end(other)
