"""The ports of one replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from aiohttp import web

from extproc.domain.errors import ConfigError
from extproc.settings import ServerSettings


def grpc_server(settings: ServerSettings) -> grpc.aio.Server:
    """Return a gRPC server that suits Envoy.

    Envoy's keep-alive pings are more frequent than grpcio likes by default: it would answer "too many pings"
    and cut every held stream after some seconds (measured; `docs/envoy.md`).
    """
    options = [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_concurrent_streams", 1_000_000),
        ("grpc.http2.bdp_probe", 0),  # Envoy's windows are large enough; the pings that size ours cost 2 %
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not a share of the load
    ]
    return grpc.aio.server(options=options)


def bind(server: grpc.aio.Server, settings: ServerSettings) -> list[str]:
    """Bind the configured addresses and return them, ports as they were given out.

    Raises:
        ConfigError: an address cannot be bound.
    """
    wanted = [settings.grpc] if settings.grpc else []
    if settings.unix_socket is not None:
        wanted.append(f"unix:{settings.unix_socket}")
    if not wanted:
        raise ConfigError("server: neither grpc nor unix_socket is set, so Envoy could not reach this server")
    bound = []
    for address in wanted:
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise ConfigError(f"server: cannot listen on {address}: {error}") from error
        bound.append(address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}")
    return bound


@asynccontextmanager
async def http_server(app: web.Application, address: str) -> AsyncIterator[str]:
    """Serve an application on `host:port` and give the address bound.

    Raises:
        ConfigError: the address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host.strip("[]") or None, int(port))
        await site.start()
    except (OSError, ValueError, OverflowError) as error:  # a port that is taken, none, or beyond 65535
        await runner.cleanup()
        raise ConfigError(f"server.http: cannot listen on {address}: {error}") from error
    try:
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
