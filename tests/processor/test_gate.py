"""What a request is: whose, how urgent, how patient, and what it costs."""

from __future__ import annotations

import asyncio

import pytest
from admission.world import BATCH, INTERACTIVE, World
from processor.stage import CHAT, Ignorance, Inline, chat

from extproc.dialects import recognise
from extproc.domain.forecast import Budget
from extproc.processor.gate import MAX_WAIT_MS, PRIORITY, TENANT, Gate, Identity, Pool
from extproc.processor.messages import Head

CLASSES = {c.name: c for c in (INTERACTIVE, BATCH)}
TRUSTING = Identity(CLASSES, INTERACTIVE, trusts_priority=True, trusts_tenant=True)
STRICT = Identity(CLASSES, INTERACTIVE, reads_max_wait=False)


@pytest.mark.parametrize("name", PRIORITY)
def test_the_class_is_read_from_each_of_its_headers_where_they_are_trusted(name):
    assert TRUSTING.priority_class({name: "batch"}) is BATCH
    assert STRICT.priority_class({name: "batch"}) is INTERACTIVE


def test_an_unknown_class_is_as_good_as_none():
    assert TRUSTING.priority_class({PRIORITY[0]: "root"}) is INTERACTIVE
    assert TRUSTING.priority_class({PRIORITY[0]: ""}) is INTERACTIVE


def test_our_own_header_comes_before_its_aliases():
    assert TRUSTING.priority_class({PRIORITY[1]: "interactive", PRIORITY[0]: "batch"}) is BATCH


@pytest.mark.parametrize("name", TENANT)
def test_the_tenant_is_read_where_it_is_trusted_and_bounded(name):
    assert TRUSTING.tenant({name: "acme"}) == "acme"
    assert len(TRUSTING.tenant({name: "x" * 10_000})) == 128
    assert STRICT.tenant({name: "acme"}) == TRUSTING.tenant({}) == "default"


@pytest.mark.parametrize("name", MAX_WAIT_MS)
@pytest.mark.parametrize(
    ("wish", "wait_s"), [("0", 0), ("1500", 1.5), ("99999999", 30), ("-1", 30), ("", 30)]
)
def test_a_client_may_shorten_its_wait_never_lengthen_it(name, wish, wait_s):
    assert TRUSTING.max_wait_s({name: wish}, 30) == wait_s
    assert STRICT.max_wait_s({name: wish}, 30) == 30


async def consider(body: bytes, *, context_tokens: int | None = 1000, **headers: str):
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    world = World()
    pool = Pool("llama", world.admission, 30.0, lambda: Budget(50, context_tokens), Ignorance())
    gate = Gate(Inline(), lambda _model: pool, TRUSTING)
    endpoint = recognise(CHAT)
    assert endpoint is not None
    return await gate.consider(endpoint, Head(CHAT, named), body)


@pytest.mark.parametrize(
    ("body", "context_tokens", "tokens"),
    [
        (chat(60), 1000, 60),
        (chat(5000), 1000, 1000),
        (chat(5000), None, 5000),
        (chat(60, n=3), 1000, 10 + 3 * 50),
        (chat().replace(b'"max_tokens": 50', b'"stop": null'), 1000, 10 + 50),
    ],
    ids=["limit", "context", "no context", "answers", "default"],
)
async def test_the_cost_is_prompt_and_output_within_the_context(body, context_tokens, tokens):
    passage = await consider(body, context_tokens=context_tokens)
    assert passage.estimate.reservation_tokens == tokens


@pytest.mark.parametrize("ticket", ["", "two words", "n\u00f6"])
async def test_a_name_that_cannot_be_one_is_replaced_by_one_of_ours(ticket):
    one, other = await asyncio.gather(*(consider(chat(), x_forebay_ticket=ticket) for _ in range(2)))
    assert one.request.id != other.request.id
    assert ticket not in (one.request.id, other.request.id)


async def test_envoys_name_is_kept_and_a_clients_is_not():
    passage = await consider(chat(), x_forebay_ticket="t-1", x_request_id="mine")
    assert passage.request.id == "t-1"
    passage = await consider(chat(), x_request_id="mine")
    assert passage.request.id != "mine"


async def test_a_body_without_a_model_is_named_after_its_pool():
    passage = await consider(chat(model=None))
    assert passage.request.model == "llama"
