"""The configuration as a whole, with what must fit together across its sections."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from extproc.estimation.settings import EstimationSettings
from extproc.settings.sections import (
    ClassSettings,
    HeaderSettings,
    LeaseSettings,
    LogSettings,
    PoolSettings,
    RedisSettings,
    ServerSettings,
    refuse_unknown_keys,
)


class Settings(BaseSettings):
    """Everything `forebay serve` needs to know."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="FOREBAY_", env_nested_delimiter="__"
    )

    _knows_its_keys = model_validator(mode="before")(refuse_unknown_keys)

    redis: RedisSettings = RedisSettings()
    on_store_loss: Literal["local", "open", "closed"] = "local"
    server: ServerSettings = ServerSettings()
    leases: LeaseSettings = LeaseSettings()
    estimation: EstimationSettings = EstimationSettings()
    headers: HeaderSettings = HeaderSettings()
    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1)] = (PoolSettings(name="default"),)
    classes: Annotated[tuple[ClassSettings, ...], Field(min_length=1)] = (
        ClassSettings(name="interactive", rank=0),
        ClassSettings(name="batch", rank=10),
    )
    default_class: str = "interactive"
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic passes its sources by name
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put the environment above the file."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _distinct("pools", [pool.name for pool in self.pools])
        _distinct("classes", [c.name for c in self.classes])
        _distinct("classes, by rank,", [str(c.rank) for c in self.classes])
        if self.default_class not in {c.name for c in self.classes}:
            raise ValueError(
                f"default_class: {self.default_class!r} is none of the classes: "
                f"{', '.join(c.name for c in self.classes)}"
            )
        return self

    def pool_for(self, model: str | None) -> PoolSettings | None:
        """Return the pool that manages a model: an exact name first, then the first pattern that matches.

        A request that names no model belongs to the only pool, if there is but one.
        """
        if model is None:
            return self.pools[0] if len(self.pools) == 1 else None
        for pool in self.pools:
            if model in pool.models:
                return pool
        for pool in self.pools:
            if any(fnmatchcase(model, pattern) for pattern in pool.models):
                return pool
        return None


def _distinct(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what} must have distinct names; twice: {', '.join(twice)}")
