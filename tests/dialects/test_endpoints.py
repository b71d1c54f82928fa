from __future__ import annotations

import pytest

from extproc.dialects import Dialect, recognise


@pytest.mark.parametrize(
    ("path", "name", "dialect"),
    [
        ("/v1/chat/completions", "chat_completions", Dialect.OPENAI),
        ("/v1/completions", "completions", Dialect.OPENAI),
        ("/v1/responses", "responses", Dialect.OPENAI),
        ("/v1/embeddings", "embeddings", Dialect.OPENAI),
        ("/v1/messages", "messages", Dialect.ANTHROPIC),
        ("/generate", "generate", Dialect.TGI),
        ("/generate_stream", "generate_stream", Dialect.TGI),
        ("/v1/score", "score", Dialect.OPENAI),
        ("/score", "score", Dialect.OPENAI),
        ("/v1/rerank", "rerank", Dialect.OPENAI),
        ("/v2/rerank", "rerank", Dialect.OPENAI),
        ("/rerank", "rerank", Dialect.OPENAI),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/openai", "/team/a"])
@pytest.mark.parametrize("query", ["", "?", "?api-version=1&x=/v1/models"])
def test_inference_paths_are_recognised_below_any_prefix_and_with_any_query(
    prefix, path, query, name, dialect
):
    endpoint = recognise(prefix + path + query)
    assert endpoint is not None
    assert (endpoint.name, endpoint.dialect) == (name, dialect)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "*",
        "/health",
        "/v1/models",
        "/v1/messages/count_tokens",
        "/v1/messages/batches",
        "/v1/responses/resp_123",
        "/v1/responses/resp_123/cancel",
        "/v1/chat/completions/",
        "/v1/chat/completionsx",
        "/xv1/chat/completions",
        "/chat/completions",
        "/v1/audio/generate",
        "/v2/models/llama/generate",
        "/v2/models/llama/versions/1/generate_stream",
        "/v1/images/generations?x=/generate",
        "/metrics?/v1/completions",
    ],
)
def test_other_paths_are_not_ours(path):
    assert recognise(path) is None


def test_percent_escapes_do_not_get_a_request_past_admission():
    assert recognise("/v1/%63hat/complet%69ons") is recognise("/v1/chat/completions")


def test_only_generation_generates():
    paths = ("/v1/embeddings", "/v1/score", "/rerank", "/v1/chat/completions", "/generate")
    assert [recognise(path).generates for path in paths] == [False, False, False, True, True]
