"""docker-compose.yml against the program it starts; no container engine is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from containers.stack import ROOT

from extproc import settings as configuration
from extproc.settings import Settings

SERVERS = ["server-1", "server-2"]
GATEWAYS = ["gateway-1", "gateway-2"]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The file's services, every variable at its default."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"(?<!\$)\$\{\w+:?-([^}]*)\}", r"\1", text))["services"]


@pytest.fixture(params=SERVERS + GATEWAYS)
def service(services: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    return services[request.param]


@pytest.fixture
def settings(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What Forebay makes of a container's environment."""
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, str(value))
    return configuration.load(None)


def test_the_configuration_is_valid_and_names_services_of_the_file(
    settings: Settings, services: dict[str, Any]
) -> None:
    [pool] = settings.pools
    assert pool.capacity.tokens == "auto"
    assert pool.backends.endpoints == ("http://engine-1:8000", "http://engine-2:8000")
    assert {"engine-1", "engine-2", "redis"} <= services.keys()
    assert settings.redis.url == "redis://redis:6379/0"


def test_it_is_given_longer_to_stop_than_it_drains(service: dict[str, Any], settings: Settings) -> None:
    grace_s = float(service["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings.server.drain_wait_s + settings.server.drain_s + 5  # last words to Redis


def test_a_gateway_asks_its_own_server_first_and_has_another(services: dict[str, Any]) -> None:
    order = [[services[name]["environment"][key] for key in ("OWN", "OTHER")] for name in GATEWAYS]
    assert order == [["server-1:9002", "server-2:9002"], ["server-2:9002", "server-1:9002"]]


def test_nothing_is_published_beyond_this_machine(services: dict[str, Any]) -> None:
    """Clients' headers are trusted here, and the admin page asks nobody who they are."""
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == [f"127.0.0.1:{port}" for port in ("9090:9090", "9091:9090", "8080:8080", "8081:8080")]
