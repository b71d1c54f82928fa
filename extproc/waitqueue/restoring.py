"""Which holdings a renewal has to put back."""

from __future__ import annotations

from collections.abc import Sequence

from extproc.admission.ports import Holding, Standing


def forgotten(holdings: Sequence[Holding], standings: Sequence[Standing]) -> list[Holding]:
    """Return the holdings to put back: of two attempts of one request, the later one."""
    pairs = zip(holdings, standings, strict=True)
    return list({h.ticket.request.id: h for h, standing in pairs if standing is Standing.UNKNOWN}.values())
