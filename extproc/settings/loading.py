"""Reads, checks and prints configurations; a fault names file, field, value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import (
    BaseModel,
    ValidationError,
)
from pydantic_settings import SettingsError

from extproc.domain.errors import ConfigError
from extproc.settings.root import Settings

_PASSWORD = re.compile(r"(://[^/@]*:)[^/@]*@")


def load(path: Path | None) -> Settings:
    """Read a configuration file.

    Args:
        path: YAML; None for the defaults and the environment alone.

    Raises:
        ConfigError: the file cannot be read or a value is not allowed; names file, field and value.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse(document or {}, source=str(path or "environment"))


def parse(document: Any, *, source: str) -> Settings:
    """Return settings from a parsed document.

    Raises:
        ConfigError: see `load`.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: the top level must be a mapping, not {type(document).__name__}")
    try:
        return Settings(**document)
    except SettingsError as error:  # a FOREBAY_ variable for a list or section that is not JSON
        raise ConfigError(f"environment: {error}: {error.__cause__}") from error
    except ValidationError as error:
        faults = error.errors(include_url=False)
        deepest = [f for f in faults if not any(_contains(f["loc"], other["loc"]) for other in faults)]
        raise ConfigError("\n".join(_explain(source, fault) for fault in deepest)) from error


def _contains(outer: tuple[Any, ...], inner: tuple[Any, ...]) -> bool:
    return len(outer) < len(inner) and inner[: len(outer)] == outer


def _explain(source: str, fault: Any) -> str:
    """Return `file: field: what is wrong (got value)`."""
    field = ".".join(str(part) for part in fault["loc"]) or "top level"
    value = fault["input"]
    is_shown = not isinstance(value, dict | BaseModel) and "@" not in str(value)  # a URL may hold a password
    got = f" (got {value!r})" if is_shown else ""
    return f"{source}: {field}: {fault['msg'].removeprefix('Value error, ')}{got}"


def dump(settings: Settings) -> str:
    """Return the effective configuration as YAML, defaults included and the store's password left out."""
    document = settings.model_dump(mode="json")
    document["redis"]["url"] = _PASSWORD.sub(r"\1***@", document["redis"]["url"])
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
