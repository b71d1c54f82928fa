"""The sections of the configuration: closed, frozen, with units in their names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from extproc.domain.rank import MAX_CLASS_RANK

PositiveInt = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


def refuse_unknown_keys(cls: type[BaseModel], data: Any) -> Any:
    """Refuse unknown keys with the names of those that are known, which pydantic's own refusal leaves out."""
    if isinstance(data, dict) and (unknown := sorted(data.keys() - cls.model_fields.keys())):
        raise ValueError(
            f"unknown key {', '.join(map(repr, unknown))}; known are {', '.join(cls.model_fields)}"
        )
    return data


def _is_url(text: str, *schemes: str) -> bool:
    """Tell whether a text is a URL with one of the schemes, a host, and a port that can be one."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or no number
        return False


def _is_address(text: str) -> bool:
    """Tell whether a text is host:port; port 0 lets the system choose."""
    try:
        parts = urlsplit(f"//{text}")
        return parts.netloc == text and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


class Section(BaseModel):
    """A part of the configuration: closed, and never changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    _knows_its_keys = model_validator(mode="before")(refuse_unknown_keys)


class RedisSettings(Section):
    """The shared store."""

    url: str = "redis://localhost:6379/0"
    timeout_s: Seconds = Field(0.25, description="budget of one call; after two in vain the store is lost")

    @field_validator("url")
    @classmethod
    def _is_a_store(cls, url: str) -> str:
        if not _is_url(url, "redis", "rediss") and not url.startswith("unix://"):
            raise ValueError("must be a URL such as redis://localhost:6379/0, rediss://... or unix:///path")
        return url


class ServerSettings(Section):
    """Where one replica listens, and how it stops."""

    grpc: str = Field("0.0.0.0:9002", description="ext_proc, access log and health; empty for none")
    unix_socket: Path | None = Field(None, description="the same services on a Unix socket")
    http: str = Field("0.0.0.0:9090", description="metrics, probes, status API and admin page")
    max_message_bytes: PositiveInt = Field(
        40 * 2**20, description="largest gRPC message; above Envoy's buffer"
    )
    drain_wait_s: Annotated[float, Field(ge=0)] = Field(
        10, description="on SIGTERM, how long those wait whom no other replica can take"
    )
    drain_s: Annotated[float, Field(ge=0)] = Field(
        120, description="on SIGTERM, how long responses may run on"
    )

    @field_validator("grpc", "http")
    @classmethod
    def _is_an_address(cls, address: str, info: ValidationInfo) -> str:
        is_absent = info.field_name == "grpc" and not address
        if not (is_absent or _is_address(address)):
            raise ValueError("must be host:port, such as 0.0.0.0:9002")
        return address


class LeaseSettings(Section):
    """How long the store believes in what nobody renews."""

    lease_s: Seconds = 12
    heartbeat_s: Seconds = Field(6, description="a waiter's place, and the grace for Envoy's retry")
    renew_every_s: Seconds = 3
    sweep_every_s: Seconds = 1

    @model_validator(mode="after")
    def _renews_in_time(self) -> Self:
        if self.renew_every_s * 2 > self.heartbeat_s:
            raise ValueError(
                f"renew_every_s ({self.renew_every_s:g}) may be at most half of heartbeat_s "
                f"({self.heartbeat_s:g}), so that one lost renewal loses nothing"
            )
        if self.heartbeat_s > self.lease_s:
            raise ValueError(f"heartbeat_s ({self.heartbeat_s:g}) may not exceed lease_s ({self.lease_s:g})")
        return self


class CapacitySettings(Section):
    """What a pool may hold at once, in the whole cluster."""

    tokens: PositiveInt | Literal["auto"] | None = Field(
        "auto", description="KV-cache tokens; `auto` asks the engines; null counts only requests"
    )
    requests: PositiveInt | None = Field(256, description="requests in the engines; null counts only tokens")


class UtilizationSettings(Section):
    """Thresholds of the control loop; read with `tokens: auto` (`docs/configuration.md`)."""

    tighten_above: Annotated[float, Field(gt=0, le=1)] = 0.88
    loosen_below: Annotated[float, Field(gt=0, le=1)] = 0.70

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.loosen_below >= self.tighten_above:
            raise ValueError(
                f"loosen_below ({self.loosen_below:g}) must be less than "
                f"tighten_above ({self.tighten_above:g})"
            )
        return self


class QueueSettings(Section):
    """Bounds of a pool's queue."""

    max_requests: PositiveInt = 512
    max_wait_s: Annotated[float, Field(ge=0, le=3500)] = Field(
        30, description="also the most a client may ask for; below Envoy's limit of 3600 s for a hold"
    )


class BackendSettings(Section):
    """The engines of a pool."""

    kind: Literal["vllm"] = "vllm"
    endpoints: tuple[str, ...] = ()

    @field_validator("endpoints")
    @classmethod
    def _are_urls(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        for endpoint in endpoints:
            if not _is_url(endpoint, "http", "https"):
                raise ValueError(f"{endpoint!r} is not a URL such as http://10.0.0.7:8000")
        return endpoints


class PoolSettings(Section):
    """Engines that serve the same models and share one queue and one limit."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    mode: Literal["enforce", "off"] = "enforce"
    capacity: CapacitySettings = CapacitySettings()
    utilization: UtilizationSettings = UtilizationSettings()
    queue: QueueSettings = QueueSettings()
    backends: BackendSettings = BackendSettings()
    context_tokens: PositiveInt | None = Field(None, description="the model's context length, when known")
    default_output_tokens: PositiveInt = Field(512, description="booked where a client gives no limit")
    reserve: Literal["mean", "occupancy", "limit"] = Field(
        "mean", description="what is booked for an answer: its mean length as learnt, or the client's limit"
    )
    usage: Literal["access_log", "stream", "off"] = Field(
        "access_log", description="where the true token counts come from (`docs/estimation.md`)"
    )
    usage_sample: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="part of the responses that are read with `usage: stream`"
    )
    stream_usage: Literal["as_asked", "inject"] = Field(
        "as_asked", description="whether streams shall tell usage that their clients did not ask for"
    )
    device: str | None = Field(None, description="label of the gpu_* metrics; the pool's name if absent")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.capacity.tokens is None and self.capacity.requests is None:
            raise ValueError("capacity: tokens and requests may not both be null")
        if self.capacity.tokens == "auto" and not self.backends.endpoints and self.capacity.requests is None:
            raise ValueError("capacity.tokens: auto needs backends.endpoints to ask, or capacity.requests")
        return self

    @model_validator(mode="after")
    def _has_use_for_usage(self) -> Self:
        if self.stream_usage == "inject" and self.usage == "off":
            raise ValueError("stream_usage: inject needs usage to be access_log or stream (got off)")
        return self


class ClassSettings(Section):
    """A priority class."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    rank: Annotated[int, Field(ge=0, le=MAX_CLASS_RANK)]
    slo_queue_wait_s: Seconds | None = None


class Trust(StrEnum):
    """What a client's header is worth."""

    TRUST = "trust"
    CLAMP = "clamp"
    IGNORE = "ignore"


class HeaderSettings(Section):
    """Which request headers are believed. Whoever can send them can use them: ignore is the default."""

    priority: Literal[Trust.TRUST, Trust.IGNORE] = Trust.IGNORE
    tenant: Literal[Trust.TRUST, Trust.IGNORE] = Trust.IGNORE
    max_wait: Literal[Trust.CLAMP, Trust.IGNORE] = Field(
        Trust.CLAMP, description="clamp: a client may shorten its wait, not lengthen it"
    )


class LogSettings(Section):
    """Logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
