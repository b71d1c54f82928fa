"""`docs/configuration.md` against the settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from extproc import settings as configuration
from extproc.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROWS = {
    key: (default.strip(), meaning.strip())
    for key, default, meaning in re.findall(
        r"^\| `([^`]+)` \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE
    )
}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give each key that a file can have, with its default."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        sections = [t for t in (field.annotation, *get_args(field.annotation)) if _is_section(t)]
        if not sections:
            yield key, "required" if field.is_required() else field.get_default(call_default_factory=True)
        elif sections[0] is field.annotation:
            yield from fields(sections[0], f"{key}.")
        else:
            yield key, ...  # a list of sections: said in words
            yield from fields(sections[0], f"{key}[].")


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


KEYS = dict(fields(Settings))


def test_the_page_has_just_the_keys_there_are():
    assert set(ROWS) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_the_page_tells_the_default(key):
    default, meaning = ROWS[key]
    assert len(meaning) > 5
    if KEYS[key] == "required":
        assert default == "required"
    elif KEYS[key] is not ...:
        told = json.loads(default.strip("`"))
        known = KEYS[key]
        assert told == (list(known) if isinstance(known, tuple) else known)


def test_the_pages_example_is_valid():
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    settings = configuration.parse(yaml.safe_load(example), source="page")
    assert settings.pools[0].name == "llama-70b"
