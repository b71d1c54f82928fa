"""The configuration: a YAML file, with `FOREBAY_` variables of the environment above it.

`FOREBAY_REDIS__URL=redis://...` sets `redis.url`; a double underscore goes one level down.
"""

from extproc.settings.loading import dump, load, parse
from extproc.settings.root import Settings
from extproc.settings.sections import (
    BackendSettings,
    CapacitySettings,
    ClassSettings,
    HeaderSettings,
    LeaseSettings,
    LogSettings,
    PoolSettings,
    QueueSettings,
    RedisSettings,
    ServerSettings,
    Trust,
    UtilizationSettings,
)

__all__ = [
    "BackendSettings",
    "CapacitySettings",
    "ClassSettings",
    "HeaderSettings",
    "LeaseSettings",
    "LogSettings",
    "PoolSettings",
    "QueueSettings",
    "RedisSettings",
    "ServerSettings",
    "Settings",
    "Trust",
    "UtilizationSettings",
    "dump",
    "load",
    "parse",
]
