"""The Envoy bootstrap of a gateway with Forebay beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from string import Template

from extproc.domain.errors import ConfigError
from extproc.envoyconfig.targets import Target, Tcp, UnixSocket
from extproc.envoyconfig.usage import DEFAULT_PROTOCOL, UsageFilter

_HEADERS = (
    "x-forebay-ticket",
    "content-encoding",
    "x-forebay-priority",
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-forebay-tenant",
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-forebay-max-wait-ms",
    "x-llm-d-inference-ttl",
    "x-forebay-ttft-slo-ms",
    "x-llm-d-slo-ttft-ms",
    "x-slo-ttft-ms",
)

REQUEST_ATTRIBUTES: tuple[str, ...] = (
    "request.id",
    "request.path",
    "request.method",
    *(f"request.headers['{name}']" for name in _HEADERS),
)
"""What Envoy tells Forebay of a request beside its body. A header that is absent is left out."""

MAX_HOLD_S = 3600
"""Envoy's upper limit for `message_timeout`, seconds."""

_LISTENER = Tcp("0.0.0.0", 8080)  # noqa: S104 - a gateway is there to be reached
_ADMIN = Tcp("127.0.0.1", 9901)
_SILENCE_S = 3600  # an engine may be silent for long while it reads a prompt; an hour is no engine any more
_ROOM_S = 60  # a hold must end by its own timer, not by the idle timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What one gateway's Envoy has to know.

    Attributes:
        extproc: Forebay's servers. The first is the gateway's own and serves as long as it lives; the
            others take over what it held when it is lost.
        engines: the engines, which all serve the same models.
        listener: where clients connect.
        admin: Envoy's admin interface, for the machine's own eyes.
        node_id: names this gateway in Envoy's logs and statistics.
        max_body_bytes: larger request bodies are refused (413).
        max_hold_s: longest time a request may be held, seconds, up to `MAX_HOLD_S`. Longer than any pool's
            longest wait, so that Forebay ends the wait and not Envoy.
        retries: how often a request that got no answer is brought to a server again. All of them take
            about 6 s, in which a server may restart; a request fails as late when there is none.
        access_log: file for a JSON line a request, such as `/dev/stdout`; None for none.
        usage_filter: reads what responses took, for Forebay to learn from.
        reads_responses: Forebay may ask for a response's body, to read itself what it took; each response
            costs a message then, and one that is read a message for each chunk.
        shares_port: False to fail where another process listens on the port, instead of sharing its clients.

    Raises:
        ConfigError: a value is out of its range, or a list is empty.
    """

    extproc: tuple[Target, ...]
    engines: tuple[Tcp, ...]
    listener: Tcp = _LISTENER
    admin: Tcp = _ADMIN
    node_id: str = "forebay-gateway"
    max_body_bytes: int = 32 * 2**20
    max_hold_s: float = 1800
    retries: int = 24
    access_log: str | None = None
    usage_filter: UsageFilter = UsageFilter.AI_PROTOCOL_MANAGER
    reads_responses: bool = False
    shares_port: bool = True

    def __post_init__(self) -> None:
        _check("extproc", self.extproc, bool(self.extproc), "at least one server")
        _check("engines", self.engines, bool(self.engines), "at least one engine")
        _check("listener", self.listener, not self.listener.is_name, "an IP address")
        _check("extproc", self.extproc, not _mixes(self.extproc), "IP addresses where one is a Unix socket")
        _check("admin", self.admin, not self.admin.is_name, "an IP address")
        _check("max_body_bytes", self.max_body_bytes, 0 < self.max_body_bytes < 2**32, "1 to 4294967295")
        _check(
            "max_hold_s", self.max_hold_s, 0.001 <= self.max_hold_s <= MAX_HOLD_S, f"0.001 to {MAX_HOLD_S}"
        )
        _check("retries", self.retries, 0 <= self.retries <= 1000, "0 to 1000")


def _check(field: str, value: object, holds: bool, allowed: str) -> None:  # noqa: FBT001 - private, and read once
    if not holds:
        raise ConfigError(f"Envoy bootstrap: {field}: must be {allowed} (got {value!r})")


def _mixes(targets: Iterable[Target]) -> bool:
    """Whether names stand beside Unix sockets: Envoy accepts such a cluster, and never finds the sockets."""
    return any(isinstance(t, UnixSocket) for t in targets) and _cluster_type(targets) == "STRICT_DNS"


def render(bootstrap: Bootstrap) -> str:
    """Return the bootstrap as YAML, with comments, for `envoy -c`."""
    own, *others = bootstrap.extproc
    priorities = {"this gateway's own": [own], "asked when its own is away": others}
    return _fill(
        "bootstrap.yaml.tmpl",
        node_id=json.dumps(bootstrap.node_id),
        admin=_address(bootstrap.admin),
        listener=_address(bootstrap.listener),
        reuse_port=json.dumps(bootstrap.shares_port),
        idle_timeout=_duration(max(_SILENCE_S, bootstrap.max_hold_s + _ROOM_S)),
        max_hold=_duration(bootstrap.max_hold_s),
        max_body_bytes=str(bootstrap.max_body_bytes),
        retries=str(bootstrap.retries),
        file_access_log=_file_access_log(bootstrap.access_log),
        usage_filter=_usage_filter(bootstrap.usage_filter),
        processing_mode=_fill(f"responses_{'read' if bootstrap.reads_responses else 'unseen'}.yaml.tmpl"),
        request_attributes="\n".join(f'              - "{name}"' for name in REQUEST_ATTRIBUTES),
        forebay_type=_cluster_type(bootstrap.extproc),
        forebay_endpoints="\n".join(
            f"      - priority: {priority}  # {comment}\n        lb_endpoints:\n{_endpoints(targets)}"
            for priority, (comment, targets) in enumerate(priorities.items())
            if targets
        ),
        engines_type=_cluster_type(bootstrap.engines),
        engines_endpoints=_endpoints(bootstrap.engines),
    )


def _fill(template: str, **values: str) -> str:
    text = resources.files("extproc.envoyconfig").joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _file_access_log(path: str | None) -> str:
    return "" if path is None else _fill("access_log.yaml.tmpl", path=json.dumps(path))


def _usage_filter(usage_filter: UsageFilter) -> str:
    if usage_filter is UsageFilter.NONE:
        return ""
    return "\n" + _fill(f"usage_{usage_filter}.yaml.tmpl", default_protocol=DEFAULT_PROTOCOL)


def _endpoints(targets: Iterable[Target]) -> str:
    return "\n".join(f"        - endpoint: {{address: {_address(target)}}}" for target in targets)


def _address(target: Target) -> str:
    """Return a `core.v3.Address` on one line; strings are quoted as JSON, which YAML understands."""
    if isinstance(target, UnixSocket):
        return f"{{pipe: {{path: {json.dumps(target.path)}}}}}"
    return f"{{socket_address: {{address: {json.dumps(target.host)}, port_value: {target.port}}}}}"


def _cluster_type(targets: Iterable[Target]) -> str:
    """Return how Envoy finds endpoints: names are looked up, addresses are taken as they are."""
    return "STRICT_DNS" if any(isinstance(t, Tcp) and t.is_name for t in targets) else "STATIC"


def _duration(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
