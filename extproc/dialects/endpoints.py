"""Which paths are inference calls, and who reads their bodies."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import unquote

from extproc.dialects import anthropic, openai, tgi
from extproc.dialects.body import Dialect, InferenceBody
from extproc.dialects.fields import JsonObject


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One kind of inference call.

    Attributes:
        name: as logs and metrics spell it.
        reader: makes an `InferenceBody` of the parsed JSON; use `extproc.dialects.read`.
        generates: False where the answer is not generated text and holds no KV cache of its own.
    """

    name: str
    dialect: Dialect
    reader: Callable[[JsonObject], InferenceBody]
    generates: bool = True


def _generate_stream(fields: JsonObject) -> InferenceBody:
    return replace(tgi.read_generate(fields), is_streaming=True)


_SCORE = Endpoint("score", Dialect.OPENAI, openai.read_score, generates=False)
_RERANK = Endpoint("rerank", Dialect.OPENAI, openai.read_rerank, generates=False)

_BY_PATH = {
    "/v1/chat/completions": Endpoint("chat_completions", Dialect.OPENAI, openai.read_chat),
    "/v1/completions": Endpoint("completions", Dialect.OPENAI, openai.read_completion),
    "/v1/responses": Endpoint("responses", Dialect.OPENAI, openai.read_response),
    "/v1/embeddings": Endpoint("embeddings", Dialect.OPENAI, openai.read_embedding, generates=False),
    "/v1/messages": Endpoint("messages", Dialect.ANTHROPIC, anthropic.read_messages),
    "/generate": Endpoint("generate", Dialect.TGI, tgi.read_generate),
    "/generate_stream": Endpoint("generate_stream", Dialect.TGI, _generate_stream),
    "/v1/score": _SCORE,
    "/score": _SCORE,
    "/v1/rerank": _RERANK,
    "/v2/rerank": _RERANK,
    "/rerank": _RERANK,
}
_LONGEST = max(path.count("/") for path in _BY_PATH)
_VERSIONED = re.compile(r"/v\d+(?:/|$)")


def recognise(path: str) -> Endpoint | None:
    """Return the endpoint a request path ends in, or None where it is none of ours.

    The query does not matter and a prefix may come first (`/openai/v1/chat/completions`). A path without
    a version is not looked for below another API's: `/v2/models/m/generate` is Triton's, not TGI's.
    Percent-escapes are undone, because servers undo them: nobody gets by with `/v1/%63ompletions`.
    """
    plain = path.partition("?")[0]
    if "%" in plain:
        plain = unquote(plain)
    if (endpoint := _BY_PATH.get(plain)) is not None:
        return endpoint
    segments = plain.rsplit("/", _LONGEST)
    for count in range(len(segments) - 1, 0, -1):
        tail = "/" + "/".join(segments[-count:])
        if (endpoint := _BY_PATH.get(tail)) is not None:
            is_foreign = count == 1 and _VERSIONED.search(plain.removesuffix(tail))
            return None if is_foreign else endpoint
    return None
