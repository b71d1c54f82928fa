"""Input nobody wants: a clear answer or an untouched pass, nothing held, nothing raised."""

from __future__ import annotations

import asyncio
import gzip
import io
import json

import pytest
from e2e.harness import System, chat, until_nothing_is_held

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PATH = "/v1/chat/completions"
INVALID = {
    "not JSON": b"{model: llama}",
    "no object": b"[1, 2]",
    "wrong type of messages": json.dumps(chat() | {"messages": "Hello"}).encode(),
    "wrong type of a limit": json.dumps(chat() | {"max_tokens": "many"}).encode(),
    "a negative limit": json.dumps(chat() | {"max_tokens": -1}).encode(),
    "deep nesting": b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "invalid UTF-8": b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
}


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
async def test_a_body_that_cannot_be_read_is_refused_with_400(shared: System, session, body: bytes) -> None:
    async with session.post(shared.urls[0] + PATH, data=body) as response:
        assert response.status == 400
        assert response.headers["x-forebay-reason"] == "invalid_body"
        assert (await response.json())["error"]["code"] == "invalid_body"


async def test_twenty_megabytes_are_refused_with_413(shared: System, session) -> None:
    body = json.dumps(chat(text="x" * 20_000_000)).encode()
    async with session.post(shared.urls[0] + PATH, data=io.BytesIO(body)) as response:
        assert (response.status, response.headers["x-forebay-reason"]) == (413, "body_too_large")
        assert (await response.json())["error"]["code"] == "body_too_large"


async def test_more_than_envoy_reads_is_refused_with_413(shared: System, session) -> None:
    async with session.post(shared.urls[0] + PATH, data=io.BytesIO(b"x" * 40_000_000)) as response:
        assert response.status == 413


async def test_a_million_repeated_characters_are_reckoned_and_refused(shared: System, session) -> None:
    """They would be 125,000 tokens, six times what the pool holds."""
    async with session.post(shared.urls[0] + PATH, json=chat(text="a" * 1_000_000)) as response:
        assert (response.status, response.headers["x-forebay-reason"]) == (413, "never_fits")


async def test_a_gzip_body_is_read(shared: System, session) -> None:
    """It goes on as it came; whether the engine reads gzip is the engine's business."""
    body = gzip.compress(json.dumps(chat(4)).encode())
    headers = {"content-encoding": "gzip"}
    async with session.post(shared.urls[0] + PATH, data=body, headers=headers) as response:
        assert response.headers["x-forebay-class"] == "interactive"


async def test_an_unknown_encoding_is_refused(shared: System, session) -> None:
    headers = {"content-encoding": "br"}
    async with session.post(shared.urls[0] + PATH, data=b"\x00\x01", headers=headers) as response:
        assert (response.status, response.headers["x-forebay-reason"]) == (400, "invalid_body")


@pytest.mark.parametrize("body", [b"", None])
async def test_an_empty_body_is_the_engines_business(shared: System, session, body: bytes | None) -> None:
    async with session.post(shared.urls[0] + PATH, data=body) as response:
        assert response.status == 400
        assert "x-forebay-reason" not in response.headers


async def test_a_get_passes(shared: System, session) -> None:
    async with session.get(shared.urls[0] + PATH) as response:
        assert response.status == 405
        assert "x-forebay-class" not in response.headers


async def test_an_unmanaged_path_with_a_body_passes(shared: System, session) -> None:
    async with session.post(shared.urls[0] + "/tokenize", json={"prompt": "Hello"}) as response:
        assert response.status == 200
        assert "x-forebay-class" not in response.headers


async def test_a_body_without_model_goes_to_the_only_pool(shared: System, session) -> None:
    body = chat(4)
    del body["model"]
    async with session.post(shared.urls[0] + PATH, json=body) as response:
        assert response.headers["x-forebay-class"] == "interactive"


async def test_an_unknown_class_and_a_silly_wait_are_as_good_as_none(shared: System, session) -> None:
    headers = {"x-forebay-priority": "emperor", "x-forebay-max-wait-ms": "-5"}
    async with session.post(shared.urls[0] + PATH, json=chat(4), headers=headers) as response:
        assert (response.status, response.headers["x-forebay-class"]) == (200, "interactive")


async def test_a_websocket_upgrade_is_refused_by_envoy(shared: System, session) -> None:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    async with session.post(shared.urls[0] + PATH, json=chat(4), headers=headers) as response:
        assert response.status == 403


async def test_nothing_of_it_is_held_and_no_exception_is_logged(shared: System, session) -> None:
    bodies = [*INVALID.values(), b"", json.dumps(chat(4)).encode()]
    await asyncio.gather(*(send(session, shared.urls[n % 2], body) for n, body in enumerate(bodies * 3)))
    await until_nothing_is_held(shared, 3)
    for name in ("server-1", "server-2"):
        log = shared.log(name)
        assert "Traceback" not in log
        assert '"level":"error"' not in log


async def send(session, url: str, body: bytes) -> int:
    async with session.post(url + PATH, data=body) as response:
        await response.read()
        return response.status
