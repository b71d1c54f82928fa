"""The Envoy that belongs to a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from extproc.domain.errors import ConfigError
from extproc.envoyconfig import MAX_HOLD_S, Bootstrap, Target, Tcp, UnixSocket, UsageFilter, parse_target
from extproc.settings import Settings

_EXAMPLE_ENGINE = "http://127.0.0.1:8000"
_SLACK_S = 60.0  # Forebay ends a wait, not Envoy
_FRAMING_BYTES = 2**20  # of a gRPC message beside the body


def bootstrap_for(
    settings: Settings,
    *,
    listen: str,
    servers: Sequence[str],
    usage_filter: UsageFilter = UsageFilter.AI_PROTOCOL_MANAGER,
) -> Bootstrap:
    """Return the bootstrap of a gateway beside one replica.

    Args:
        settings: the replica's configuration; its engines become Envoy's upstream.
        listen: `host:port` for clients.
        servers: replicas as Envoy reaches them, the gateway's own first; by default the one configured.
        usage_filter: reads what responses took.

    Raises:
        ConfigError: an address is none.
    """
    endpoints = dict.fromkeys(url for pool in settings.pools for url in pool.backends.endpoints)
    listener = parse_target(listen)
    if not isinstance(listener, Tcp):
        raise ConfigError(f"--listen {listen}: must be host:port")
    return Bootstrap(
        extproc=tuple(parse_target(server) for server in servers) or (_own(settings),),
        engines=tuple(_engine(url) for url in endpoints or (_EXAMPLE_ENGINE,)),
        listener=listener,
        max_hold_s=min(MAX_HOLD_S, _longest_wait_s(settings) + settings.server.drain_wait_s + _SLACK_S),
        usage_filter=usage_filter,
        reads_responses=reads_responses(settings),
        max_body_bytes=min(32 * 2**20, settings.server.max_message_bytes - _FRAMING_BYTES),
    )


def reads_responses(settings: Settings) -> bool:
    """Return whether the replica reads responses of any pool."""
    return any(pool.usage == "stream" for pool in settings.pools)


def _longest_wait_s(settings: Settings) -> float:
    return max(pool.queue.max_wait_s for pool in settings.pools)


def _own(settings: Settings) -> Target:
    if settings.server.unix_socket is not None:
        return UnixSocket(str(settings.server.unix_socket.absolute()))
    address = parse_target(settings.server.grpc)
    is_any = isinstance(address, Tcp) and address.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    return Tcp("127.0.0.1", address.port) if isinstance(address, Tcp) and is_any else address


def _engine(url: str) -> Tcp:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"backends.endpoints: {url}: the Envoy bootstrap can only reach http://host:port")
    return Tcp(parts.hostname, parts.port or 80)
