"""Refusals as the clients' own libraries understand them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import openai
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extproc.dialects import Dialect, error_body
from extproc.domain.outcome import STATUS, Refusal

OPENAI_CLASSES = {
    400: openai.BadRequestError,
    413: openai.APIStatusError,
    429: openai.RateLimitError,
    503: openai.InternalServerError,
}
ANTHROPIC_CLASSES = {
    400: anthropic.BadRequestError,
    413: anthropic.APIStatusError,
    429: anthropic.RateLimitError,
    503: anthropic.InternalServerError,
}
OPENAI_TYPES = {
    400: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "server_error",
}
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


@pytest.fixture
async def refusing_url() -> AsyncIterator[str]:
    """A server that refuses every request for the reason in its path."""

    async def refuse(request: web.Request) -> web.Response:
        dialect = Dialect.ANTHROPIC if request.path.endswith("/messages") else Dialect.OPENAI
        refusal = Refusal(request.match_info["reason"])
        body = error_body(
            dialect, status=STATUS[refusal], message="No, because.", param="max_tokens", code=refusal.value
        )
        return web.Response(body=body, status=STATUS[refusal], content_type="application/json")

    app = web.Application()
    app.router.add_post("/{reason}/v1/{call:.*}", refuse)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.parametrize("refusal", Refusal)
async def test_the_openai_library_raises_what_each_refusal_means(refusing_url, refusal):
    url = f"{refusing_url}{refusal.value}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(OPENAI_CLASSES[STATUS[refusal]]) as raised:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    fault = raised.value
    assert (fault.status_code, fault.code, fault.param) == (STATUS[refusal], refusal.value, "max_tokens")
    assert fault.type == OPENAI_TYPES[STATUS[refusal]]
    assert "No, because." in fault.message


@pytest.mark.parametrize("refusal", Refusal)
async def test_the_anthropic_library_raises_what_each_refusal_means(refusing_url, refusal):
    url = f"{refusing_url}{refusal.value}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(ANTHROPIC_CLASSES[STATUS[refusal]]) as raised:
            await client.messages.create(
                model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
            )
    fault = raised.value
    assert (fault.status_code, fault.error_code) == (STATUS[refusal], refusal.value)
    assert fault.type == ANTHROPIC_TYPES[STATUS[refusal]]
    assert fault.api_message == "max_tokens: No, because."


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "validation"), (413, "validation"), (429, "overloaded"), (503, "overloaded")]
)
def test_tgi_has_an_error_and_its_type(status, kind):
    body = error_body(Dialect.TGI, status=status, message="No.", param=None, code="x")
    assert orjson.loads(body) == {"error": "No.", "error_type": kind}


def test_a_field_the_message_names_already_is_not_named_twice():
    body = error_body(
        Dialect.TGI, status=400, message="'inputs' is required", param="inputs", code="invalid_body"
    )
    assert orjson.loads(body)["error"] == "'inputs' is required"
