"""Who reads the token usage of responses."""

from __future__ import annotations

from enum import StrEnum


class UsageFilter(StrEnum):
    """The filter that reads what responses took as they pass; `docs/envoy.md` compares them.

    Each has a template of its name, but for the last.
    """

    AI_PROTOCOL_MANAGER = "ai_protocol_manager"
    SSE_TO_METADATA = "sse_to_metadata"
    NONE = "none"


DEFAULT_PROTOCOL = "default_llm_protocol"
"""A field of `ai_protocol_manager` in Envoy 1.40; Envoy's main branch calls it `default_api_protocol`."""
