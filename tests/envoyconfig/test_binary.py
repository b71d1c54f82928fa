from __future__ import annotations

import sys
from pathlib import Path

import pytest

from extproc.domain.errors import ConfigError
from extproc.envoyconfig import find_envoy


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No Envoy anywhere, but what a test puts there."""
    monkeypatch.delenv("FOREBAY_ENVOY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_the_variable_outranks_the_path_and_the_path_the_setup(monkeypatch, tmp_path):
    set_up = program(tmp_path / "prefix/opt/envoy/bin/envoy")
    assert find_envoy() == set_up
    on_path = program(tmp_path / "path/envoy")
    assert find_envoy() == on_path
    named = program(tmp_path / "named")
    monkeypatch.setenv("FOREBAY_ENVOY", str(named))
    assert find_envoy() == named


def test_the_binary_is_taken_from_behind_the_packages_script(tmp_path):
    program(tmp_path / "prefix/opt/envoy/bin/envoy")
    binary = program(tmp_path / "prefix/opt/envoy/lib/python3.11/site-packages/envoy/_bin/envoy")
    assert find_envoy() == binary


def test_a_missing_envoy_is_reported_with_what_was_tried_and_what_helps(tmp_path):
    with pytest.raises(ConfigError) as caught:
        find_envoy()
    for part in ("FOREBAY_ENVOY", "PATH", str(tmp_path / "prefix/opt/envoy/bin/envoy"), "make setup"):
        assert part in str(caught.value)


def test_a_wrong_variable_is_reported_rather_than_passed_over(monkeypatch, tmp_path):
    program(tmp_path / "path/envoy")
    monkeypatch.setenv("FOREBAY_ENVOY", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"FOREBAY_ENVOY: .*/nothing is not an executable file"):
        find_envoy()
