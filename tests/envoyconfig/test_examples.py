"""The files in `envoy/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from extproc.envoyconfig import render
from extproc.envoyconfig.examples import EXAMPLES, main

FOLDER = Path(__file__).parents[2] / "envoy"


def test_the_folder_holds_these_examples_and_no_package():
    assert {path.name for path in FOLDER.iterdir()} == {*EXAMPLES, "README.md"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_committed_example_is_what_is_rendered(name):
    assert (FOLDER / name).read_text() == render(EXAMPLES[name]), (
        "run `python -m extproc.envoyconfig.examples envoy`"
    )


def test_the_command_writes_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["examples", str(tmp_path)])
    main()
    assert {path.name for path in tmp_path.iterdir()} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_envoy_accepts_an_example(envoy_binary, name):
    command = [envoy_binary, "--mode", "validate", "-c", FOLDER / name, "--log-level", "warning"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "deprecated" not in checked.stderr.lower()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_readme_tells_of_an_example(name):
    assert name in (FOLDER / "README.md").read_text()
