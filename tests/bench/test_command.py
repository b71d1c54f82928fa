"""`forebay bench` as a person runs it."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from extproc.bench import Result
from extproc.cli import app
from extproc.domain.errors import ConfigError


def run(*words):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_a_gateway_that_is_away_is_status_1_and_its_result_is_saved(tmp_path, unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}"
    shown = run("--url", url, "--rate", 100, "--duration", 0.1, "--save", tmp_path / "a.json", "--json")
    assert shown.exit_code == 1
    [*classes, everyone] = json.loads(shown.stdout)["classes"]
    assert {c["priority_class"] for c in classes} == {"interactive", "batch"}
    assert everyone["outcomes"] == {"unreachable": everyone["requests"]}
    saved = Result.load(tmp_path / "a.json")
    assert len(saved.samples) == everyone["requests"]


def test_two_saved_results_are_compared_without_sending(tmp_path):
    samples = [{"priority_class": "urgent", "sent_s": 0, "late_s": 0, "outcome": "ok"}] * 100
    for name, e2e_s in (("a", 2.0), ("b", 3.0)):
        seen = [sample | {"e2e_s": e2e_s, "ttft_s": None, "queue_wait_s": None} for sample in samples]
        document = {"format": 1, "started_at": "", "duration_s": 10.0, "options": {}, "samples": seen}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    shown = run("--compare", tmp_path / "a.json", tmp_path / "b.json")
    assert shown.exit_code == 0
    assert "whole answer p99, ms" in shown.stdout
    assert "x1.50" in shown.stdout


def test_a_class_that_cannot_be_read_is_told_before_anything_is_sent():
    shown = run("--class", "batch")
    assert isinstance(shown.exception, ConfigError)
