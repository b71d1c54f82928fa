"""The system of docker-compose.yml, each test's own, in the form in which the end-to-end suite knows one."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from e2e.harness import System
from testcontainers.compose import DockerCompose

ROOT = Path(__file__).parents[2]
FILES = ["docker-compose.yml", "tests/containers/tests.yaml"]

_VARIABLES = {
    "--speed": "ENGINE_SPEED",
    "--capacity-tokens": "CAPACITY_TOKENS",
    "--capacity-requests": "CAPACITY_REQUESTS",
}
_ANY_PORTS = dict.fromkeys(("PORT_1", "PORT_2", "ADMIN_PORT_1", "ADMIN_PORT_2"), "")
_SERVICES = {"extproc": "server", "envoy": "gateway"}


def trouble() -> str | None:
    """Return why containers cannot be run here, or None when they can."""
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            subprocess.run(command, capture_output=True, check=True, text=True, timeout=30)
        except FileNotFoundError:
            return "there is no `docker` on the PATH"
        except subprocess.TimeoutExpired:
            return f"`{' '.join(command)}` does not answer"
        except subprocess.CalledProcessError as error:
            return f"`{' '.join(command)}`: {error.stderr.strip().splitlines()[-1]}"
    return None


def build() -> None:
    """Build the image, or fail with the end of the builder's words."""
    done = subprocess.run(
        ["docker", "compose", "build"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"docker compose build:\n{(done.stdout + done.stderr)[-4000:]}"


@dataclass
class Stack(System):
    """A system of containers."""

    compose: DockerCompose

    def kill(self, kind: str, index: int, number: int = signal.SIGKILL) -> None:
        service = f"{_SERVICES[kind]}-{index + 1}"
        self.do("kill", "--signal", signal.Signals(number).name, service)

    def log(self, name: str) -> str:
        return self.do("logs", "--no-color", "--no-log-prefix", name)

    def do(self, *command: str) -> str:
        """Run a command of `docker compose` and return what it printed."""
        done = subprocess.run(
            [*self.compose.docker_compose_command(), *command],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout


@contextlib.contextmanager
def run_stack(folder: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Stack]:
    """Start the containers with options of `forebay demo`, and remove them; nothing of them may be left."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    if environment or given.keys() - _VARIABLES.keys():
        pytest.skip(f"only for processes: {' '.join(options)} {environment or ''}")
    variables = {_VARIABLES[option]: value for option, value in given.items()} | _ANY_PORTS
    variables["COMPOSE_PROJECT_NAME"] = f"forebay-{secrets.token_hex(4)}"
    env_file = folder / "compose.env"
    env_file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    with DockerCompose(ROOT, compose_file_name=FILES, env_file=str(env_file)) as compose:
        described = _describe(compose)
        store = redis.Redis.from_url(described["redis"], decode_responses=True)
        stack = Stack(described, store, compose)
        try:
            yield stack
        finally:
            stack.tell_troubles()
            store.connection_pool.disconnect()
    assert not compose.get_containers(include_all=True), "containers were left behind"


def _describe(compose: DockerCompose) -> dict:
    """Return what `forebay demo --json` would."""

    def address(service: str, port: int) -> str:
        return f"127.0.0.1:{compose.get_service_port(service, port)}"

    return {
        "gateways": [
            {
                "url": f"http://{address(f'gateway-{n}', 8080)}",
                "admin": f"http://{address(f'server-{n}', 9090)}",
            }
            for n in (1, 2)
        ],
        "redis": f"redis://{address('redis', 6379)}/0",
        "engines": [{"url": f"http://{address(f'engine-{n}', 8000)}"} for n in (1, 2)],
    }
