"""What was foreseen of a request, as text in Envoy's dynamic metadata: it comes back with the access log.

One field for all numbers, because each field of a Struct costs Envoy and us more than its few bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from extproc.domain.response import Foresight

_PACKED = re.compile(r"(\d{1,15}) (\d{1,15}) (\d{1,15}) (-1|\d{1,15}) (\d{1,15})", re.ASCII)
"""counted_tokens prompt_tokens output_tokens max_output_tokens answers; -1 is no limit."""


def foresight_fields(foresight: Foresight) -> dict[str, str]:
    """Return the fields to set in the metadata."""
    limit = -1 if foresight.max_output_tokens is None else foresight.max_output_tokens
    numbers = (
        foresight.counted_tokens,
        foresight.prompt_tokens,
        foresight.output_tokens,
        limit,
        foresight.answers,
    )
    return {
        "model": foresight.model,
        "tenant": foresight.tenant,
        "foresight": " ".join(map(str, numbers)),
    }


def read_foresight(fields: Mapping[str, str]) -> Foresight | None:
    """Return what `foresight_fields` packed, or None where it is missing or malformed."""
    packed = _PACKED.fullmatch(fields.get("foresight", ""))
    if packed is None or "model" not in fields or "tenant" not in fields:
        return None
    counted, prompt, output, limit, answers = map(int, packed.groups())
    return Foresight(
        fields["model"], fields["tenant"], counted, prompt, output, None if limit == -1 else limit, answers
    )
