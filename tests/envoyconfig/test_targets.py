from __future__ import annotations

import pytest

from extproc.domain.errors import ConfigError
from extproc.envoyconfig import Tcp, UnixSocket, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("10.0.0.7:9002", Tcp("10.0.0.7", 9002)),
        ("forebay.svc:9002", Tcp("forebay.svc", 9002)),
        ("[::1]:0", Tcp("::1", 0)),
        ("unix:/run/forebay.sock", UnixSocket("/run/forebay.sock")),
    ],
)
def test_a_target_is_read_as_it_is_written(text, target):
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "host", ":9002", "host:", "host:x", "host:70000", "host:-1", "::1:9002", "unix:run.sock", "host:²"],
)
def test_what_is_no_target_is_named(text):
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    assert text.removeprefix("unix:").split(":")[0] in str(caught.value)


@pytest.mark.parametrize(("host", "is_name"), [("10.0.0.7", False), ("::1", False), ("localhost", True)])
def test_a_name_is_told_from_an_address(host, is_name):
    assert Tcp(host, 1).is_name is is_name
