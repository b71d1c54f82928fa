"""Faults on demand: what a client asks for by `x-sim-fault`, so that tests can see a gateway bear it.

- `status-NNN`: answer that status at once, with vLLM's error body.
- `reset-after-N`: drop the connection after N pieces of the stream; instead of sending a whole answer.
- `hang`: accept the request and never answer; the request does not enter the batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from extproc.simulator.api.errors import ApiError

_FORM = re.compile(r"(?P<hang>hang)|status-(?P<status>[45]\d\d)|reset-after-(?P<reset_after>\d{1,9})")


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of failure; at most one field is set."""

    hangs: bool = False
    status: int | None = None
    reset_after_pieces: int | None = None


def fault(header: str | None) -> Fault:
    """Read the header; without one nothing fails.

    Raises:
        ApiError: the header names no known fault.
    """
    if header is None:
        return Fault()
    match = _FORM.fullmatch(header.strip())
    if match is None:
        raise ApiError(
            400, f"x-sim-fault: {header!r} is no fault", kind="BadRequestError", param="x-sim-fault"
        )
    if match["status"] is not None:
        return Fault(status=int(match["status"]))
    if match["reset_after"] is not None:
        return Fault(reset_after_pieces=int(match["reset_after"]))
    return Fault(hangs=True)
