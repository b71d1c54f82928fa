"""The configuration: what it takes, and what it says to what it does not."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml

from extproc import settings as configuration
from extproc.domain.errors import ConfigError
from extproc.settings import Settings

SAMPLE = """
redis: {url: redis://localhost:6379/0, timeout_s: 0.25}
on_store_loss: local            # local | open | closed
pools:
  - name: llama-70b
    models: ["meta-llama/Llama-3.3-70B-Instruct", "llama-70b*"]
    mode: enforce
    capacity: {tokens: auto, requests: 256}
    utilization: {tighten_above: 0.88, loosen_below: 0.70}
    queue: {max_requests: 512, max_wait_s: 30}
    backends: {kind: vllm, endpoints: ["http://10.0.0.7:8000"]}
classes:
  - {name: interactive, rank: 0, slo_queue_wait_s: 0.5}
  - {name: batch, rank: 10}
default_class: interactive
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in os.environ:
        if name.startswith("FOREBAY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path):
    def load(text: str) -> Settings:
        file = tmp_path / "forebay.yaml"
        file.write_text(text)
        return configuration.load(file)

    return load


def with_pool(**pool: Any) -> str:
    return yaml.safe_dump({"pools": [{"name": "p", **pool}]})


def test_the_public_sample_is_valid(load):
    settings = load(SAMPLE)
    [pool] = settings.pools
    assert pool.capacity.tokens == "auto"
    assert pool.queue.max_wait_s == 30
    assert [c.rank for c in settings.classes] == [0, 10]


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_everything_has_a_default(load, text):
    assert load(text) == configuration.load(None) == configuration.parse({}, source="here")


def test_the_effective_configuration_reads_back_as_itself(load):
    settings = load(SAMPLE)
    assert load(configuration.dump(settings)) == settings


BAD = {
    "unknown key": ("redis: {adress: x}", "redis", "'adress'", "known are url, timeout_s"),
    "unknown section": ("rediss: {}", "top level", "'rediss'", "known are redis, on_store_loss"),
    "policy": ("on_store_loss: ignore", "on_store_loss", "'ignore'", "'local', 'open' or 'closed'"),
    "timeout": ("redis: {timeout_s: 0}", "redis.timeout_s", "0", "greater than 0"),
    "text for a number": ("redis: {timeout_s: soon}", "redis.timeout_s", "'soon'", "valid number"),
    "no pools": ("pools: []", "pools", "[]", "at least 1 item"),
    "pool name": (with_pool(name="a b"), "pools.0.name", "'a b'", "match pattern"),
    "no models": (with_pool(models=[]), "pools.0.models", "[]", "at least 1 item"),
    "mode": (with_pool(mode="maybe"), "pools.0.mode", "'maybe'", "'enforce'"),
    "capacity": (with_pool(capacity={"tokens": 0}), "pools.0.capacity.tokens", "0", "greater than or equal"),
    "no limit": (
        with_pool(capacity={"tokens": None, "requests": None}),
        "pools.0",
        "capacity",
        "may not both be null",
    ),
    "auto without a source": (
        with_pool(capacity={"tokens": "auto", "requests": None}),
        "pools.0",
        "capacity.tokens: auto",
        "needs backends.endpoints",
    ),
    "usage for nobody": (
        with_pool(usage="off", stream_usage="inject"),
        "pools.0",
        "stream_usage: inject",
        "access_log or stream",
    ),
    "no sample": (with_pool(usage_sample=0), "pools.0.usage_sample", "0", "greater than 0"),
    "thresholds": (
        with_pool(utilization={"tighten_above": 0.5, "loosen_below": 0.9}),
        "pools.0.utilization",
        "loosen_below (0.9)",
        "must be less than tighten_above (0.5)",
    ),
    "wait": (
        with_pool(queue={"max_wait_s": 4000}),
        "pools.0.queue.max_wait_s",
        "4000",
        "less than or equal to 3500",
    ),
    "endpoint": (
        with_pool(backends={"endpoints": ["10.0.0.7:8000"]}),
        "pools.0.backends.endpoints",
        "'10.0.0.7:8000'",
        "http://10.0.0.7:8000",
    ),
    "engine's port": (
        with_pool(backends={"endpoints": ["http://engine:99999"]}),
        "pools.0.backends.endpoints",
        "'http://engine:99999'",
        "http://10.0.0.7:8000",
    ),
    "store": (
        "redis: {url: 'localhost:6379'}",
        "redis.url",
        "'localhost:6379'",
        "rediss://... or unix:///path",
    ),
    "store's port": (
        "redis: {url: 'redis://h:port'}",
        "redis.url",
        "'redis://h:port'",
        "redis://localhost:6379/0",
    ),
    "port": ("server: {http: '0.0.0.0:70000'}", "server.http", "'0.0.0.0:70000'", "must be host:port"),
    "no port": ("server: {grpc: localhost}", "server.grpc", "'localhost'", "must be host:port"),
    "no host": ("server: {http: ''}", "server.http", "''", "must be host:port"),
    "a path": (
        "server: {grpc: 'unix:/run/x.sock'}",
        "server.grpc",
        "'unix:/run/x.sock'",
        "must be host:port",
    ),
    "pools alike": ("pools: [{name: p}, {name: p}]", "pools", "twice: p", "distinct names"),
    "classes alike": (
        "classes: [{name: a, rank: 0}, {name: a, rank: 1}]\ndefault_class: a",
        "classes",
        "twice: a",
        "distinct names",
    ),
    "ranks alike": (
        "classes: [{name: a, rank: 5}, {name: b, rank: 5}]\ndefault_class: a",
        "classes, by rank,",
        "twice: 5",
        "distinct",
    ),
    "rank": (
        "classes: [{name: interactive, rank: 1024}]",
        "classes.0.rank",
        "1024",
        "less than or equal to 1023",
    ),
    "default class": ("default_class: fast", "default_class", "'fast'", "interactive, batch"),
    "header trust": ("headers: {tenant: clamp}", "headers.tenant", "'clamp'", "trust"),
    "renewal": (
        "leases: {renew_every_s: 5}",
        "leases",
        "renew_every_s (5)",
        "at most half of heartbeat_s (6)",
    ),
    "heartbeat": ("leases: {heartbeat_s: 13}", "leases", "heartbeat_s (13)", "may not exceed lease_s (12)"),
    "estimation": (
        "estimation: {exact_bytes: 1}",
        "estimation.exact_bytes",
        "1",
        "greater than or equal to 4096",
    ),
    "encoding": (
        "estimation: {encodings: {m: p50k}}",
        "estimation.encodings.m",
        "'p50k'",
        "'cl100k_base' or 'o200k_base'",
    ),
    "log level": ("log: {level: loud}", "log.level", "'loud'", "'debug'"),
    "a list": ("- 1", "", "list", "must be a mapping"),
    "no YAML": ("a: [", "", "", "expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_value_is_named_with_file_field_and_what_is_allowed(load, tmp_path, case):
    text, field, value, allowed = BAD[case]
    with pytest.raises(ConfigError) as caught:
        load(text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "forebay.yaml"))
    for part in (field, value, allowed):
        assert part in message


def test_a_password_is_not_told(load):
    with pytest.raises(ConfigError) as caught:
        load("redis: {url: 'http://user:hunter2@store'}")
    assert "redis.url" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://:pw@store:6380/1", "rediss://store", "unix:///run/redis.sock?db=1", "redis://[::1]:6379"]
)
def test_every_form_of_a_stores_address_is_taken(load, url):
    assert load(f"redis: {{url: '{url}'}}").redis.url == url


@pytest.mark.parametrize("address", ["0.0.0.0:9002", "[::]:9002", "localhost:0", ""])
def test_every_form_of_an_address_is_taken(load, address):
    assert load(f"server: {{grpc: '{address}'}}").server.grpc == address


def test_every_fault_is_told_at_once(load):
    with pytest.raises(ConfigError) as caught:
        load("on_store_loss: x\nlog: {level: y}")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("make", [lambda p: p / "none.yaml", lambda p: p], ids=["absent", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, make):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        configuration.load(make(tmp_path))


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        configuration.load(tmp_path / "x.yaml")


# --- environment ----------------------------------------------------------------------------------------


def test_the_environment_stands_above_the_file(load, monkeypatch):
    monkeypatch.setenv("FOREBAY_REDIS__URL", "redis://elsewhere:1/0")
    monkeypatch.setenv("FOREBAY_ON_STORE_LOSS", "closed")
    settings = load(SAMPLE)
    assert (settings.redis.url, settings.redis.timeout_s) == ("redis://elsewhere:1/0", 0.25)
    assert settings.on_store_loss == "closed"


def test_a_list_in_the_environment_is_json(monkeypatch):
    monkeypatch.setenv("FOREBAY_POOLS", '[{"name": "p", "capacity": {"tokens": 5}}]')
    assert configuration.load(None).pools[0].capacity.tokens == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOREBAY_POOLS", "[not json"),
        ("FOREBAY_ON_STORE_LOSS", "ignore"),
        ("FOREBAY_REDIS__ADRESS", "x"),
        ("FOREBAY_REDIS", "{"),
    ],
)
def test_a_bad_variable_is_a_fault_that_names_itself(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        configuration.load(None)
    field = name.removeprefix("FOREBAY_").lower().partition("__")[0]
    assert field in str(caught.value).lower()


# --- pools ----------------------------------------------------------------------------------------------


def pools(**models: list[str]) -> Settings:
    found = [{"name": name, "models": patterns} for name, patterns in models.items()]
    return configuration.parse({"pools": found}, source="here")


@pytest.mark.parametrize(
    ("model", "pool"),
    [
        ("llama-70b", "exact"),
        ("llama-70b-instruct", "pattern"),
        ("LLAMA-70B", None),
        ("gpt", None),
        (None, None),
    ],
)
def test_an_exact_name_comes_before_patterns(model, pool):
    found = pools(pattern=["llama*"], exact=["llama-70b"]).pool_for(model)
    assert (found.name if found else None) == pool


def test_a_request_without_a_model_belongs_to_the_only_pool():
    found = pools(only=["llama"]).pool_for(None)
    assert found is not None
    assert found.name == "only"


def test_the_effective_configuration_tells_no_password():
    settings = configuration.parse({"redis": {"url": "redis://user:secret@host:6379/0"}}, source="file")
    assert "secret" not in configuration.dump(settings)
    assert "redis://user:***@host:6379/0" in configuration.dump(settings)
