"""Ports of a demo: claimed until Envoy takes them, so that two demos never share clients."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from extproc.domain.errors import ConfigError
from extproc.simulator.launch import claim_ports
from extproc.simulator.processes import claim_port


def ports(claims) -> list[int]:
    return [claim.getsockname()[1] for claim in claims]


def test_two_demos_that_start_at_once_get_different_ports():
    with ExitStack() as stack:
        first = ports(claim_ports(2, None, stack))
        second = ports(claim_ports(2, None, stack))
        assert len({*first, *second}) == 4


def test_a_port_that_was_asked_for_and_is_in_use_is_named():
    with ExitStack() as stack:
        taken = stack.enter_context(claim_port(0)).getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {taken}: port {taken} is in use"):
            claim_ports(1, taken, stack)


def test_a_claim_that_was_given_up_can_be_taken():
    with ExitStack() as stack:
        claim = stack.enter_context(claim_port(0))
        port = claim.getsockname()[1]
        claim.close()
        assert ports(claim_ports(1, port, stack)) == [port]
