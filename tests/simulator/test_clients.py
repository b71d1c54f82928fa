"""The official clients understand the engine."""

from __future__ import annotations

import anthropic
import openai
import pytest


@pytest.fixture
async def openai_client(engine):
    async with openai.AsyncOpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic_client(engine):
    async with anthropic.AsyncAnthropic(base_url=engine.url, api_key="none", max_retries=0) as client:
        yield client


MESSAGES = [{"role": "user", "content": "hello there"}]


async def test_openai_chat(openai_client):
    answer = await openai_client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5)
    assert answer.usage.prompt_tokens == 7
    assert len(answer.choices[0].message.content.split()) == answer.usage.completion_tokens


async def test_openai_chat_in_a_stream(openai_client):
    stream = await openai_client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content for chunk in chunks if chunk.choices)
    assert len(said.split()) == chunks[-1].usage.completion_tokens == 5


async def test_openai_completions(openai_client):
    answer = await openai_client.completions.create(model="tiny", prompt=["one", "two"], max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1]


async def test_openai_responses(openai_client):
    answer = await openai_client.responses.create(model="tiny", input="hello", max_output_tokens=4)
    assert len(answer.output_text.split()) == answer.usage.output_tokens


async def test_openai_responses_in_a_stream(openai_client):
    async with openai_client.responses.stream(model="tiny", input="hello", max_output_tokens=4) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert "".join(deltas) == final.output_text


async def test_openai_embeddings_come_as_base64(openai_client):
    """What this client asks for unless told otherwise."""
    encoded = await openai_client.embeddings.create(model="tiny", input="hello")
    plain = await openai_client.embeddings.create(model="tiny", input="hello", encoding_format="float")
    assert encoded.data[0].embedding == pytest.approx(plain.data[0].embedding)


async def test_openai_models(openai_client):
    assert [model.id async for model in openai_client.models.list()] == ["tiny"]


async def test_openai_errors(openai_client):
    with pytest.raises(openai.NotFoundError) as error:
        await openai_client.chat.completions.create(model="nope", messages=MESSAGES)
    assert error.value.param == "model"


async def test_anthropic_messages(anthropic_client):
    answer = await anthropic_client.messages.create(
        model="tiny", messages=MESSAGES, max_tokens=4, extra_body={"ignore_eos": True}
    )
    assert len(answer.content[0].text.split()) == answer.usage.output_tokens == 4
    assert answer.stop_reason == "max_tokens"


async def test_anthropic_messages_in_a_stream(anthropic_client):
    async with anthropic_client.messages.stream(
        model="tiny",
        messages=MESSAGES,
        system="be brief",
        max_tokens=4,
        extra_body={"ignore_eos": True},
    ) as stream:
        said = "".join([text async for text in stream.text_stream])
        final = await stream.get_final_message()
    assert len(said.split()) == final.usage.output_tokens == 4
    assert final.usage.input_tokens == 9


async def test_anthropic_counts_tokens(anthropic_client):
    counted = await anthropic_client.messages.count_tokens(model="tiny", messages=MESSAGES)
    assert counted.input_tokens == 7


async def test_anthropic_errors(anthropic_client):
    with pytest.raises(anthropic.NotFoundError) as error:
        await anthropic_client.messages.create(model="nope", messages=MESSAGES, max_tokens=4)
    assert error.value.body["error"]["type"] == "not_found_error"
