"""The command line, as a process would be run; commands that need no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from extproc import cli
from extproc.domain.errors import ConfigError
from extproc.envoyconfig import UsageFilter, find_envoy

BODY = {"model": "llama-70b", "messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 100}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "forebay.yaml"
    pool = {
        "name": "llama",
        "models": ["llama*"],
        "capacity": {"tokens": 5000},
        "backends": {"endpoints": ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]},
        "context_tokens": 4096,
    }
    file.write_text(yaml.safe_dump({"pools": [pool]}))
    return file


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "extproc", *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=50, check=False)


def call(*words: object, stdin: str = "") -> str:
    """Run a command in this process and return what it prints."""
    done = CliRunner().invoke(cli.app, [*map(str, words)], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_check_config_prints_everything_and_succeeds(config):
    done = run("check-config", config)
    assert (done.returncode, done.stderr) == (0, "")
    effective = yaml.safe_load(done.stdout)
    assert effective["pools"][0]["capacity"] == {"tokens": 5000, "requests": 256}
    assert effective["server"]["grpc"] == "0.0.0.0:9002"


def test_check_config_names_the_fault_and_fails_with_2(config):
    config.write_text("on_store_loss: perhaps")
    done = run("check-config", config)
    assert done.returncode == 2
    assert done.stdout == ""
    for part in (str(config), "on_store_loss", "'perhaps'", "'local', 'open' or 'closed'"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_no_traceback(tmp_path):
    done = run("serve", "--check", "--config", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_command_it_helps():
    done = run()
    assert "serve" in done.stdout + done.stderr


def test_serve_check_validates_and_exits(config):
    assert call("serve", "--check", "--config", config) == f"{config}: ok\n"
    assert call("serve", "--check") == "environment: ok\n"


def test_check_config_in_this_process(config):
    assert yaml.safe_load(call("check-config", config))["default_class"] == "interactive"


def test_a_fault_in_this_process_ends_it_with_2(monkeypatch, capsys, config):
    config.write_text("pools: []")
    monkeypatch.setattr(sys, "argv", ["forebay", "check-config", str(config)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"forebay: {config}: pools: ")


# --- estimate -------------------------------------------------------------------------------------------


def estimate(config: Path, body: object, *words: object) -> dict:
    return json.loads(call("estimate", "--config", config, *words, stdin=json.dumps(body)))


def test_estimate_tells_what_would_be_reserved_and_why(config):
    found = estimate(config, BODY)
    assert found["pool"] == "llama"
    assert found["output_tokens"] == 100
    assert found["output_from"] == "the limit"
    assert 5 <= found["prompt_tokens"] <= 20
    assert found["reservation_tokens"] == found["prompt_tokens"] + 100
    assert (found["context_tokens"], found["capacity_tokens"]) == (4096, 5000)


def test_estimate_books_the_pools_default_where_the_client_gives_no_limit(config):
    found = estimate(config, {k: v for k, v in BODY.items() if k != "max_tokens"})
    assert (found["output_tokens"], found["output_from"]) == (512, "pool's default_output_tokens")


def test_estimate_reserves_nothing_where_no_pool_manages_the_model(config):
    found = estimate(config, BODY, "--model", "gpt-5")
    assert (found["pool"], found["reservation_tokens"]) == (None, 0)


def test_estimate_reads_the_dialect_of_the_path(config):
    found = estimate(config, {"inputs": "Hello", "parameters": {"max_new_tokens": 7}}, "--path", "/generate")
    assert found["output_tokens"] == 7


@pytest.mark.parametrize(
    ("words", "body", "told"),
    [
        (["--path", "/v1/models"], "{}", "--path /v1/models"),
        ([], "no json", "cannot be read"),
        (["--model", "x"], "no json", "cannot be read"),
        (["--model", "x"], "[1]", "cannot be read"),
        ([], '{"model": 5}', "cannot be read"),
    ],
)
def test_estimate_says_what_it_cannot_read(config, words, body, told):
    with pytest.raises(ConfigError, match=told):
        call("estimate", "--config", config, *words, stdin=body)


# --- envoy-config ---------------------------------------------------------------------------------------


def clusters(text: str) -> dict[str, list[str]]:
    found = {}
    for cluster in yaml.safe_load(text)["static_resources"]["clusters"]:
        endpoints = [
            e["endpoint"]["address"]
            for group in cluster["load_assignment"]["endpoints"]
            for e in group["lb_endpoints"]
        ]
        found[cluster["name"]] = [
            f"{a['socket_address']['address']}:{a['socket_address']['port_value']}"
            if "socket_address" in a
            else a["pipe"]["path"]
            for a in endpoints
        ]
    return found


def test_envoy_config_puts_the_engines_behind_and_the_replica_beside(config):
    found = clusters(call("envoy-config", "--config", config))
    assert ["127.0.0.1:8001", "127.0.0.1:8002"] in found.values()
    assert ["127.0.0.1:9002"] in found.values()


def test_envoy_config_prefers_the_unix_socket(config):
    config.write_text(config.read_text() + "server: {unix_socket: /run/forebay.sock}\n")
    assert ["/run/forebay.sock"] in clusters(call("envoy-config", "--config", config)).values()


def test_envoy_config_takes_other_servers_in_order(config):
    words = ("--extproc", "10.0.0.1:9002", "--extproc", "unix:/run/b.sock")
    found = clusters(call("envoy-config", "--config", config, *words))
    assert any("10.0.0.1:9002" in endpoints for endpoints in found.values())
    assert any("/run/b.sock" in endpoints for endpoints in found.values())


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        ("", ["--listen", "unix:/run/x.sock"], "--listen unix:/run/x.sock"),
        ("", ["--listen", "nowhere"], "nowhere"),
        ("pools: [{name: p, backends: {endpoints: ['https://engine']}}]\n", [], "https://engine"),
        ("server: {grpc: ''}\n", [], "host"),
    ],
)
def test_envoy_config_refuses_what_envoy_could_not_use(config, change, words, told):
    if change:
        config.write_text(change)
    with pytest.raises(ConfigError, match=told):
        call("envoy-config", "--config", config, *words)


@pytest.mark.parametrize("usage_filter", [*UsageFilter, None])
def test_envoy_accepts_the_bootstrap(config, tmp_path, usage_filter):
    try:
        envoy = find_envoy()
    except ConfigError as error:
        pytest.skip(str(error))
    file = tmp_path / "envoy.yaml"
    words = ["--usage-filter", usage_filter.value] if usage_filter else []
    text = call("envoy-config", "--config", config, "--listen", "127.0.0.1:0", *words)
    assert ("AiProtocolManager" in text) == (usage_filter in (None, UsageFilter.AI_PROTOCOL_MANAGER))
    assert ("SseToMetadata" in text) == (usage_filter is UsageFilter.SSE_TO_METADATA)
    file.write_text(text)
    done = subprocess.run(
        [envoy, "--mode", "validate", "-c", file], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


# --- the others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "top"])
def test_nobody_at_the_address_is_told_as_such(command):
    with pytest.raises(ConfigError, match=r"--url http://127\.0\.0\.1:1"):
        call(command, "--url", "http://127.0.0.1:1")


def test_a_bad_engine_is_told_as_such():
    with pytest.raises(ConfigError, match="scheduling_policy"):
        call("engine", "--scheduling-policy", "random")
