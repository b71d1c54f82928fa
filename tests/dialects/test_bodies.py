"""What each endpoint's body asks for."""

from __future__ import annotations

import json

import orjson
import pytest

from extproc.dialects import (
    Dialect,
    InferenceBody,
    Media,
    MediaKind,
    Section,
    Text,
    TokenIds,
    Turn,
    Unseen,
    read,
    recognise,
)
from extproc.dialects.fields import MAX_ANSWERS, MAX_TOKENS

S = Section


def body_of(path: str, **fields: object) -> InferenceBody:
    endpoint = recognise(path)
    assert endpoint is not None
    return read(endpoint, orjson.dumps(fields))


def chat(**fields: object) -> InferenceBody:
    return body_of("/v1/chat/completions", **{"messages": [{"role": "user", "content": "hi"}], **fields})


def texts(body: InferenceBody, section: Section | None = None) -> list[str]:
    return [p.text for p in body.prompt if isinstance(p, Text) and section in (None, p.section)]


def types(body: InferenceBody) -> list[type]:
    """Named tuples of different types may be equal, so where it matters types are compared too."""
    return [type(part) for part in body.prompt]


def media(body: InferenceBody) -> list[Media]:
    return [part for part in body.prompt if isinstance(part, Media)]


def test_a_chat_becomes_turns_and_texts_in_order():
    body = body_of(
        "/v1/chat/completions",
        model="m",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": "Why?"}, "Tell me."]},
            {"role": "assistant", "content": None, "reasoning_content": "Hm."},
        ],
    )
    assert body.model == "m"
    assert body.dialect is Dialect.OPENAI
    assert types(body) == [Turn, Text, Turn, Text, Text, Text, Turn, Text]
    assert body.prompt == (
        Turn(S.SYSTEM),
        Text(S.SYSTEM, "Be brief."),
        Turn(S.MESSAGES),
        Text(S.MESSAGES, "ann"),
        Text(S.MESSAGES, "Why?"),
        Text(S.MESSAGES, "Tell me."),
        Turn(S.MESSAGES),
        Text(S.MESSAGES, "Hm."),
    )


def test_a_chat_without_options_asks_for_one_answer_of_unknown_length():
    body = chat()
    assert (body.model, body.max_output_tokens, body.answers, body.prompts) == (None, None, 1, 1)
    assert (body.is_streaming, body.wants_usage, body.priority, body.service_tier) == (
        False,
        False,
        None,
        None,
    )


def test_an_empty_model_is_none():
    assert chat(model="").model is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 900}, 900),
        ({"max_tokens": 900, "max_completion_tokens": 1}, 900),
        ({"max_output_tokens": 7}, 7),
        ({"max_new_tokens": 7, "max_tokens": None}, 7),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 16.0}, 16),
        ({"max_tokens": 10**30}, MAX_TOKENS),
        ({"max_tokens": None}, None),
    ],
)
def test_the_larger_of_the_limits_given_counts(limits, expected):
    assert body_of(
        "/v1/chat/completions", messages=[], **json.loads(json.dumps(limits), parse_int=float)
    ) == (body_of("/v1/chat/completions", messages=[], max_tokens=expected))


@pytest.mark.parametrize(
    ("fields", "answers"),
    [({"n": 3}, 3), ({"best_of": 5, "n": 2}, 5), ({"n": None}, 1), ({"n": 10**9}, MAX_ANSWERS)],
)
def test_answers_are_the_larger_of_n_and_best_of(fields, answers):
    assert chat(**fields).answers == answers


def test_streaming_priority_and_tier_are_read():
    body = chat(stream=True, stream_options={"include_usage": True}, priority=-3, service_tier="flex")
    assert (body.is_streaming, body.wants_usage, body.priority, body.service_tier) == (True, True, -3, "flex")


def test_tools_and_schemas_are_part_of_the_prompt_as_templates_print_them():
    tools = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "required": ["a", "b"]}},
        }
    ]
    schema = {"name": "s", "schema": {"type": "object", "properties": {}}}
    body = chat(tools=tools, response_format={"type": "json_schema", "json_schema": schema})
    assert texts(body, S.TOOLS) == [json.dumps(tools)]
    assert texts(body, S.RESPONSE_FORMAT) == [json.dumps(schema)]
    assert texts(chat(response_format={"type": "json_object"}), S.RESPONSE_FORMAT) == []


def test_earlier_tool_calls_and_their_results_are_part_of_the_prompt():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    body = chat(
        messages=[
            {"role": "assistant", "tool_calls": [call], "function_call": {"name": "g", "arguments": "{}"}},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    )
    assert texts(body) == ["f", '{"a": 1}', "g", "{}", "42"]


def test_an_unusual_role_is_text_and_usual_ones_are_in_the_turn():
    assert texts(chat(messages=[{"role": "ipython", "content": "x"}, {"role": "tool", "content": "y"}])) == [
        "ipython",
        "x",
        "y",
    ]


def test_media_of_chats_keep_their_source_and_detail_and_are_no_text():
    body = chat(
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"},
                    },
                    {"image_url": "https://example.com/a.png"},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "audio_url", "audio_url": {"url": "https://example.com/a.mp3"}},
                    {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                    {"type": "hologram", "hologram": {"frames": []}},
                ],
            }
        ]
    )
    assert media(body) == [
        Media(S.MESSAGES, MediaKind.IMAGE, "data:image/png;base64,AAAA", "low"),
        Media(S.MESSAGES, MediaKind.IMAGE, "https://example.com/a.png"),
        Media(S.MESSAGES, MediaKind.AUDIO, "AAAA"),
        Media(S.MESSAGES, MediaKind.AUDIO, "https://example.com/a.mp3"),
        Media(S.MESSAGES, MediaKind.VIDEO, "https://example.com/a.mp4"),
        Media(S.MESSAGES, MediaKind.FILE, None),
    ]
    assert texts(body) == []


def test_a_long_data_uri_amid_text_is_cut_out_of_it():
    uri = "data:image/png;base64," + "iVBORw0KGgo" * 30 + "=="
    body = chat(messages=[{"role": "user", "content": f"Look: ![]({uri}) and {uri}"}])
    assert texts(body) == ["Look: ![](", ") and ", ""]
    assert [m.source for m in media(body)] == [uri, uri]
    assert {m.kind for m in media(body)} == {MediaKind.DATA}


@pytest.mark.parametrize(
    "text", ["data:text/plain;base64,QUJD", "x;base64," + "A" * 900, "see data:, not ;base64,"]
)
def test_short_or_headless_data_uris_stay_text(text):
    assert texts(chat(messages=[{"role": "user", "content": text}])) == [text]


def test_a_data_uri_longer_than_a_stride_is_cut_whole():
    uri = "data:application/pdf;base64," + "QUJD" * 50_000
    assert texts(chat(messages=[{"content": uri + " end"}])) == ["", " end"]


@pytest.mark.parametrize(
    ("prompt", "parts", "prompts"),
    [
        ("Once", (Text(S.PROMPT, "Once"),), 1),
        (["a", "b"], (Text(S.PROMPT, "a"), Text(S.PROMPT, "b")), 2),
        ([1, 2, 3], (TokenIds(S.PROMPT, 3),), 1),
        ([[1, 2], [3]], (TokenIds(S.PROMPT, 2), TokenIds(S.PROMPT, 1)), 2),
        ([], (), 1),
        (None, (), 1),
    ],
)
def test_completions_take_text_token_ids_and_lists_of_either(prompt, parts, prompts):
    body = body_of("/v1/completions", prompt=prompt, n=2, max_tokens=5)
    assert body.prompt == parts
    assert (body.prompts, body.answers, body.max_output_tokens) == (prompts, 2 * prompts, 5)


def test_a_completion_sees_its_suffix_and_not_its_embeddings():
    body = body_of("/v1/completions", prompt="a", suffix="b", prompt_embeds="AAAA")
    assert texts(body) == ["a", "b"]
    assert types(body) == [Text, Text, Unseen]


def test_a_response_takes_a_string_with_instructions():
    body = body_of("/v1/responses", instructions="Be brief.", input="Why?", max_output_tokens=9, stream=True)
    assert body.prompt == (Text(S.SYSTEM, "Be brief."), Turn(S.MESSAGES), Text(S.MESSAGES, "Why?"))
    assert (body.max_output_tokens, body.is_streaming, body.wants_usage) == (9, True, True)


def test_a_response_takes_items_of_every_kind():
    body = body_of(
        "/v1/responses",
        previous_response_id="resp_1",
        text={"format": {"type": "json_schema", "schema": {"a": 1}}},
        input=[
            {"role": "developer", "content": "d"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "https://e.com/a.png", "detail": "low"}],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "o"}]},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "s"}],
                "encrypted_content": "zzz",
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "43"}],
            },
        ],
    )
    assert texts(body, S.SYSTEM) == ["d"]
    assert texts(body, S.MESSAGES) == ["u", "o", "s", "f", "{}", "42", "43"]
    assert media(body) == [Media(S.MESSAGES, MediaKind.IMAGE, "https://e.com/a.png", "low")]
    assert types(body).count(Unseen) == 2  # the earlier response and the sealed reasoning


def test_embeddings_answer_nothing():
    body = body_of("/v1/embeddings", input=["a", "b"], model="e", truncate_prompt_tokens=512)
    assert body.prompt == (Text(S.PROMPT, "a"), Text(S.PROMPT, "b"))
    assert (body.answers, body.prompts, body.max_output_tokens, body.truncate_tokens) == (0, 2, None, 512)
    assert texts(body_of("/v1/embeddings", messages=[{"role": "user", "content": "a"}])) == ["a"]
    assert body_of("/v1/embeddings", input="a", truncate_prompt_tokens=-1).truncate_tokens is None


def test_anthropic_messages_are_read_block_by_block():
    body = body_of(
        "/v1/messages",
        model="claude",
        max_tokens=100,
        stream=True,
        service_tier="auto",
        system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        tools=[{"name": "t", "input_schema": {"type": "object"}}],
        output_config={"format": {"type": "json_schema", "schema": {}}},
        messages=[
            {"role": "user", "content": "u"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x" * 900},
                    {"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}]},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                    },
                    {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}},
                    {"type": "document", "title": "T", "source": {"type": "text", "data": "plain"}},
                    {
                        "type": "document",
                        "source": {"type": "content", "content": [{"type": "text", "text": "c"}]},
                    },
                    {"type": "document", "source": {"type": "base64", "data": "JVBER"}},
                    {
                        "type": "search_result",
                        "source": "https://e.com",
                        "content": [{"type": "text", "text": "f"}],
                    },
                ],
            },
        ],
    )
    assert body.dialect is Dialect.ANTHROPIC
    assert texts(body, S.SYSTEM) == ["s"]
    assert texts(body, S.MESSAGES) == ["u", "hm", "t", '{"a": 1}', "r", "T", "plain", "c", "f"]
    assert len(texts(body, S.TOOLS)) == len(texts(body, S.RESPONSE_FORMAT)) == 1
    assert [(m.kind, m.source) for m in media(body)] == [
        (MediaKind.IMAGE, "AAAA"),
        (MediaKind.IMAGE, "https://e.com/a.png"),
        (MediaKind.FILE, "JVBER"),
    ]
    assert types(body).count(Turn) == 4  # the system's too
    assert (body.max_output_tokens, body.answers, body.wants_usage, body.service_tier) == (
        100,
        1,
        True,
        "auto",
    )


def test_tgi_keeps_its_options_in_parameters():
    fields = {"inputs": "Hi", "parameters": {"max_new_tokens": 20, "best_of": 2, "truncate": 1000}}
    body = body_of("/generate", **fields)
    assert body.prompt == (Text(S.PROMPT, "Hi"),)
    assert (body.model, body.max_output_tokens, body.answers, body.truncate_tokens) == (None, 20, 2, 1000)
    assert (body.is_streaming, body_of("/generate_stream", **fields).is_streaming) == (False, True)


def test_a_data_uri_in_tgi_inputs_is_an_image():
    uri = "data:image/png;base64," + "A" * 400
    body = body_of("/generate", inputs=f"![]({uri})What?", parameters=None)
    assert media(body) == [Media(S.PROMPT, MediaKind.IMAGE, uri)]


def test_sglang_shares_the_path_with_tgi():
    options = {"sampling_params": {"max_new_tokens": 5, "n": 2}}
    assert texts(body_of("/generate", text=["a", "b"], **options)) == ["a", "b"]
    body = body_of("/generate", input_ids=[1, 2, 3], stream=True, **options)
    assert body.prompt == (TokenIds(S.PROMPT, 3),)
    assert (body.max_output_tokens, body.answers, body.is_streaming) == (5, 2, True)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/score", {"text_1": "q", "text_2": ["a", "b", "c"]}),
        ("/score", {"queries": "q", "documents": ["a", "b", "c"]}),
        ("/v1/score", {"data_1": "q", "data_2": ["a", "b", "c"]}),
        ("/v1/rerank", {"query": "q", "documents": ["a", "b", "c"], "top_n": 1}),
        ("/v2/rerank", {"query": "q", "documents": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}),
        ("/rerank", {"query": "q", "texts": ["a", "b", "c"]}),
    ],
)
def test_a_lone_query_is_read_with_each_document(path, fields):
    body = body_of(path, **fields)
    assert body.prompt == (
        Text(S.PROMPT, "q", times=3),
        Text(S.DOCUMENTS, "a"),
        Text(S.DOCUMENTS, "b"),
        Text(S.DOCUMENTS, "c"),
    )
    assert (body.prompts, body.answers) == (3, 0)


def test_equal_lists_are_scored_pair_by_pair():
    body = body_of("/v1/score", text_1=["a", "b"], text_2=["c", "d"])
    assert [part.times for part in body.prompt] == [1, 1, 1, 1]
    assert body.prompts == 2


def test_documents_of_a_chat_are_part_of_the_prompt():
    assert texts(chat(documents=[{"title": "t"}]), S.DOCUMENTS) == ['[{"title": "t"}]']


def test_unknown_fields_and_nulls_are_passed_over():
    nulls = dict.fromkeys(("tools", "response_format", "stream", "stream_options", "priority", "n", "model"))
    assert chat(**nulls, logit_bias={"a": [[]]}, metadata={"x": {"y": 1}}) == chat()
