"""What a request meets on its way through the gateway, seen on real Envoy."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLD = {"x-forebay-queue-wait-ms": "12", "x-forebay-reserved-tokens": "345", "x-forebay-class": "interactive"}


@pytest.fixture
def gateway(shared_gateway):
    shared_gateway.forget()
    return shared_gateway


async def test_an_admitted_response_tells_wait_tokens_and_class(gateway):
    answer = await gateway.post()
    assert (answer.status, answer.told) == (200, TOLD)


async def test_an_unmanaged_response_tells_nothing(gateway):
    answer = await gateway.post({"then": "pass"})
    assert (answer.status, answer.told) == (200, {})


@pytest.mark.parametrize(("then", "told"), [("admit", TOLD), ("pass", {})])
async def test_an_engine_cannot_speak_for_forebay(gateway, then, told):
    forged = dict.fromkeys(TOLD, "forged")
    answer = await gateway.post({"then": then, "engine_headers": {**forged, "x-other": "kept"}})
    assert answer.told == told
    assert answer.headers["x-other"] == "kept"


async def test_a_refusal_reaches_the_client_as_it_was_written(gateway):
    headers = {"x-forebay-class": "batch", "x-forebay-queue-wait-ms": "7", "x-forebay-reason": "queue_full"}
    answer = await gateway.post({"then": "refuse", "headers": headers})
    assert (answer.status, answer.told, answer.body) == (429, headers, b"full")
    assert gateway.engines[0].requests == []


async def test_each_http_request_has_a_ticket_of_its_own(gateway):
    forged = {"x-request-id": "same", "x-forebay-ticket": "mine"}
    for _ in range(3):
        await gateway.post(headers=forged)
    attributes = [note["attributes"] for note in gateway.seen("request")]
    tickets = {a["request.headers['x-forebay-ticket']"] for a in attributes}
    assert [a["request.id"] for a in attributes] == ["same"] * 3
    assert len(tickets) == 3
    assert "mine" not in tickets


async def test_the_ticket_does_not_reach_the_engine(gateway):
    answer = await gateway.post()
    assert "x-forebay-ticket" not in {name.lower() for name in answer.json["headers"]}


async def test_the_engine_hears_nothing_while_a_request_is_held(gateway, wait_until, tmp_path):
    go = tmp_path / "go"
    held = asyncio.create_task(gateway.post({"until": str(go)}))
    await wait_until(lambda: gateway.seen("request"))
    assert gateway.engines[0].requests == []
    go.touch()
    assert (await held).status == 200
    assert len(gateway.engines[0].requests) == 1


async def test_the_server_sees_path_headers_and_the_whole_body_in_one_message(gateway):
    await gateway.post(headers={"x-forebay-priority": "batch"}, path="/v1/completions?a=b", size=200_000)
    (note,) = gateway.seen("request")
    assert note["size"] > 200_000
    assert note["attributes"]["request.path"] == "/v1/completions?a=b"
    assert note["attributes"]["request.method"] == "POST"
    assert note["attributes"]["request.headers['x-forebay-priority']"] == "batch"
    assert "request.headers['x-forebay-tenant']" not in note["attributes"]


@pytest.mark.parametrize(
    "path", ["/v1/%63hat/completions", "/v1%2Fchat/completions", "/x/../v1/chat/completions"]
)
async def test_a_path_cannot_be_disguised(gateway, path):
    await gateway.post(path=path)
    (note,) = gateway.seen("request")
    assert note["attributes"]["request.path"] == "/v1/chat/completions"


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_request_without_a_body_passes_unasked(gateway, method):
    answer = await gateway.request(method, "/v1/models")
    assert (answer.status, answer.told) == (200, {})
    assert gateway.seen("request") == []


async def test_a_large_body_passes_whole(gateway):
    answer = await gateway.post(size=5_000_000)
    assert answer.status == 200
    assert answer.json["size"] > 5_000_000
