"""What a user sees: requests through either gateway, one queue, one limit."""

from __future__ import annotations

import asyncio
import json

import anthropic
import openai
import pytest
from e2e.harness import Held, Sampler, System, chat, post, until_held, until_nothing_is_held, until_waiting

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize("gateway", [0, 1])
async def test_the_openai_package_gets_a_completion(shared: System, gateway: int) -> None:
    async with openai.AsyncOpenAI(base_url=f"{shared.urls[gateway]}/v1", api_key="none") as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="llama-3.3-70b", max_tokens=8, messages=[{"role": "user", "content": "Hello"}]
        )
    answer = raw.parse()
    assert answer.usage.completion_tokens == 8
    assert raw.headers["x-forebay-class"] == "interactive"
    assert int(raw.headers["x-forebay-queue-wait-ms"]) >= 0
    assert (
        int(raw.headers["x-forebay-reserved-tokens"]) == 8 + 8
    )  # four of framing, three before the reply, one word


async def test_the_openai_package_streams_with_usage(shared: System) -> None:
    async with openai.AsyncOpenAI(base_url=f"{shared.urls[0]}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model="llama-3.3-70b",
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
            messages=[{"role": "user", "content": "Hello"}],
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage.completion_tokens == 8
    await until_nothing_is_held(shared, 2)


async def test_the_anthropic_package_gets_a_message(shared: System) -> None:
    async with anthropic.AsyncAnthropic(base_url=shared.urls[1], api_key="none") as client:
        message = await client.messages.create(
            model="llama-3.3-70b", max_tokens=8, messages=[{"role": "user", "content": "Hello"}]
        )
    assert message.usage.output_tokens == 8


async def test_what_no_pool_manages_passes_untouched(shared: System, session) -> None:
    async with session.get(f"{shared.urls[0]}/v1/models") as response:
        assert response.status == 200
        assert not [name for name in response.headers if name.lower().startswith("x-forebay")]


async def test_a_refusal_is_the_openai_packages_own_exception(shared: System) -> None:
    async with openai.AsyncOpenAI(base_url=f"{shared.urls[0]}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(
                model="llama-3.3-70b", max_tokens=30_000, messages=[{"role": "user", "content": "Hello"}]
            )
    assert (caught.value.status_code, caught.value.code) == (413, "never_fits")
    assert caught.value.response.headers["x-forebay-reason"] == "never_fits"
    assert "retry-after" not in caught.value.response.headers


async def test_three_hundred_at_once_never_exceed_a_limit_for_ten(demo, session) -> None:
    """Tokens allow ten of these requests at a time; so does the number of requests."""
    system: System = demo("--speed", "20", "--capacity-tokens", "600", "--capacity-requests", "10")
    body = chat(50, text="word " * 2)
    with Sampler(system) as sampler:
        answers = await asyncio.gather(*(post(session, system.urls[n % 2], body) for n in range(300)))
    reserved = {int(headers["x-forebay-reserved-tokens"]) for _, headers, _ in answers}
    assert [status for status, _, _ in answers] == [200] * 300
    assert len(reserved) == 1
    assert max(s.requests for s in sampler.samples) <= 10
    assert max(s.tokens for s in sampler.samples) <= 600
    assert max(s.requests for s in sampler.samples) == min(10, 600 // reserved.pop())  # and the room was used
    assert len([s for s in sampler.samples if s.waiting]) > 20
    await until_nothing_is_held(system, 3)
    assert system.keys_that_stay() == {"{forebay:v1:demo}:capacity"}


async def test_requests_are_answered_in_order_of_class_and_arrival(demo, session) -> None:
    """One at a time: first whatever came first, then interactive before batch, each in order of arrival."""
    system: System = demo("--capacity-requests", "1")
    first = asyncio.create_task(
        post(session, system.urls[0], chat(250, ignore_eos=True), x_request_id="first")
    )
    tasks = [first]
    for n in range(12):
        priority = "batch" if n % 3 else "interactive"
        await (until_waiting(system, n) if n else until_held(system))
        tasks.append(
            asyncio.create_task(
                post(
                    session,
                    system.urls[n % 2],
                    chat(1),
                    x_request_id=f"{priority}-{n}",
                    x_forebay_priority=priority,
                )
            )
        )
    answers = await asyncio.gather(*tasks)
    assert [status for status, _, _ in answers] == [200] * 13
    served = [arrival["request_id"] for arrival in await system.arrivals()]
    expected = [f"interactive-{n}" for n in range(0, 12, 3)] + [f"batch-{n}" for n in range(12) if n % 3]
    assert served == ["first", *expected]


async def test_a_wait_that_lasts_too_long_ends_with_429_and_a_time(demo, session) -> None:
    system: System = demo("--capacity-requests", "1")
    hog = asyncio.create_task(post(session, system.urls[0], chat(400, ignore_eos=True)))
    await until_held(system)
    status, headers, body = await post(session, system.urls[1], chat(), x_forebay_max_wait_ms="300")
    assert (status, headers["x-forebay-reason"]) == (429, "wait_timeout")
    assert 1 <= int(headers["retry-after"]) <= 60
    assert json.loads(body)["error"]["code"] == "wait_timeout"
    status, headers, _ = await post(session, system.urls[1], chat(), x_forebay_max_wait_ms="0")
    assert (status, headers["x-forebay-reason"]) == (429, "not_queued")
    assert system.held().waiting == 0
    hog.cancel()
    await until_nothing_is_held(system, 3)


async def test_every_replica_shows_the_clusters_figures(demo, session) -> None:
    system: System = demo("--capacity-requests", "1")
    hog = asyncio.create_task(post(session, system.urls[0], chat(400, ignore_eos=True)))
    await until_held(system)
    waiter = asyncio.create_task(post(session, system.urls[0], chat()))
    await until_waiting(system, 1)
    await asyncio.sleep(1.5)  # figures are read once a second
    for gateway in system.described["gateways"]:
        async with session.get(f"{gateway['admin']}/metrics") as page:
            text = await page.text()
        assert 'forebay_inflight_requests{pool="demo"} 1.0' in text
        assert 'forebay_queue_depth{class="interactive",pool="demo"} 1.0' in text
        assert 'forebay_replicas{pool="demo"} 2.0' in text
    waiter.cancel()
    hog.cancel()
    await until_nothing_is_held(system, 3)
    assert system.held() == Held(0, 0, 0)
