"""Where something listens: a TCP address or a Unix socket."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from extproc.domain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tcp:
    """A TCP address.

    Attributes:
        host: an IP address, or a name that Envoy looks up.
        port: 0 to 65535; 0 lets the system choose, where something listens.

    Raises:
        ConfigError: the host is empty or the port out of range.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host or not 0 <= self.port <= 65535:
            raise ConfigError(f"{self.host!r}, port {self.port}: not a host and a port from 0 to 65535")

    @property
    def is_name(self) -> bool:
        """Whether the host has to be looked up."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return True
        return False


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """A Unix socket.

    Attributes:
        path: absolute, so that it means the same to Envoy and to Forebay.

    Raises:
        ConfigError: the path is not absolute.
    """

    path: str

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ConfigError(f"Unix socket {self.path!r}: the path must be absolute")


Target = Tcp | UnixSocket


def parse_target(text: str) -> Target:
    """Return the target that `host:port`, `[ipv6]:port` or `unix:/path` names.

    Raises:
        ConfigError: it is none of these.
    """
    if text.startswith("unix:"):
        return UnixSocket(text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r}: an IPv6 address needs brackets, as in [::1]:9002")
    if not host or not (port.isascii() and port.isdigit()):
        raise ConfigError(f"{text!r} is neither host:port nor unix:/path")
    return Tcp(host, int(port))
