"""The rendered text, without Envoy."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml

from extproc.domain.errors import ConfigError
from extproc.envoyconfig import REQUEST_ATTRIBUTES, Bootstrap, Tcp, UnixSocket, UsageFilter, render

BOOTSTRAP = Bootstrap(extproc=(Tcp("127.0.0.1", 9002),), engines=(Tcp("10.0.1.21", 8000),))


def rendered(**changes):
    return yaml.safe_load(render(replace(BOOTSTRAP, **changes)))


def cluster(document, name):
    return next(c for c in document["static_resources"]["clusters"] if c["name"] == name)


def connection_manager(document):
    (listener,) = document["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def http_filter(document, name):
    filters = connection_manager(document)["http_filters"]
    return next(f["typed_config"] for f in filters if f["name"] == name)


def test_the_own_server_has_the_first_priority_and_the_others_the_second():
    others = (Tcp("10.0.0.12", 9002), Tcp("10.0.0.13", 9002))
    endpoints = cluster(rendered(extproc=(UnixSocket("/run/f.sock"), *others)), "forebay")["load_assignment"][
        "endpoints"
    ]
    addresses = {e["priority"]: [x["endpoint"]["address"] for x in e["lb_endpoints"]] for e in endpoints}
    assert addresses == {
        0: [{"pipe": {"path": "/run/f.sock"}}],
        1: [{"socket_address": {"address": other.host, "port_value": 9002}} for other in others],
    }


def test_forebay_is_told_what_it_asks_for():
    asked = http_filter(rendered(), "envoy.filters.http.ext_proc")["request_attributes"]
    assert tuple(asked) == REQUEST_ATTRIBUTES
    assert {"request.path", "request.headers['x-forebay-ticket']", "request.headers['content-encoding']"} <= {
        *asked
    }


@pytest.mark.parametrize(("reads", "mode"), [(False, "SKIP"), (True, "SEND")])
def test_responses_are_told_only_to_a_replica_that_reads_them(reads, mode):
    ext_proc = http_filter(rendered(reads_responses=reads), "envoy.filters.http.ext_proc")
    assert ext_proc.get("allow_mode_override", False) == reads
    assert ext_proc["processing_mode"] == {
        "request_header_mode": "SKIP",
        "request_body_mode": "BUFFERED",
        "response_header_mode": mode,
        "response_body_mode": "NONE",
        "response_trailer_mode": "SEND",
    }


def test_every_place_that_limits_bodies_has_the_same_limit():
    document = rendered(max_body_bytes=1_000_000)
    assert http_filter(document, "envoy.filters.http.buffer")["max_request_bytes"] == 1_000_000
    (host,) = connection_manager(document)["route_config"]["virtual_hosts"]
    assert host["request_body_buffer_limit"] == 1_000_000


@pytest.mark.parametrize("max_hold_s", [0.25, 30, 3600])
def test_a_hold_ends_by_its_own_timer(max_hold_s):
    document = rendered(max_hold_s=max_hold_s)
    hold, idle, route_idle = (
        float(duration.removesuffix("s"))
        for duration in (
            http_filter(document, "envoy.filters.http.ext_proc")["message_timeout"],
            connection_manager(document)["stream_idle_timeout"],
            connection_manager(document)["route_config"]["virtual_hosts"][0]["routes"][0]["route"][
                "idle_timeout"
            ],
        )
    )
    assert hold == max_hold_s
    assert idle == route_idle > hold


@pytest.mark.parametrize(
    ("host", "kind"), [("10.0.0.7", "STATIC"), ("::1", "STATIC"), ("engine.svc", "STRICT_DNS")]
)
def test_names_are_looked_up_and_addresses_are_not(host, kind):
    document = rendered(engines=(Tcp(host, 8000),), extproc=(Tcp(host, 9002),))
    assert {c["type"] for c in document["static_resources"]["clusters"]} == {kind}


def test_values_cannot_change_the_documents_shape():
    odd = 'a"b: {c}\n# $admin %PATH%'
    document = rendered(node_id=odd, access_log=f"/tmp/{odd}")
    assert document["node"]["id"] == odd
    assert connection_manager(document)["access_log"][1]["typed_config"]["path"] == f"/tmp/{odd}"


def test_the_file_access_log_is_optional():
    assert len(connection_manager(rendered())["access_log"]) == 1


@pytest.mark.parametrize("usage_filter", UsageFilter)
def test_usage_is_read_next_to_the_engine_or_not_at_all(usage_filter):
    names = [f["name"] for f in connection_manager(rendered(usage_filter=usage_filter))["http_filters"]]
    between = names[names.index("guard") + 1 : -1]
    assert between == ([] if usage_filter is UsageFilter.NONE else ["usage"])
    assert names[-1] == "envoy.filters.http.router"


def test_nothing_of_the_template_is_left_over():
    for usage_filter in UsageFilter:
        assert not re.search(r"\$\w", render(replace(BOOTSTRAP, usage_filter=usage_filter)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extproc": ()}, "extproc: must be at least one server"),
        ({"engines": ()}, "engines: must be at least one engine"),
        (
            {"extproc": (UnixSocket("/f"), Tcp("forebay.svc", 9002))},
            "IP addresses where one is a Unix socket",
        ),
        ({"listener": Tcp("localhost", 80)}, "listener: must be an IP address"),
        ({"admin": Tcp("localhost", 80)}, "admin: must be an IP address"),
        ({"max_body_bytes": 0}, "max_body_bytes: must be 1 to 4294967295 (got 0)"),
        ({"max_hold_s": 0}, "max_hold_s: must be 0.001 to 3600 (got 0)"),
        ({"max_hold_s": 3601}, "max_hold_s: must be 0.001 to 3600 (got 3601)"),
        ({"retries": -1}, "retries: must be 0 to 1000 (got -1)"),
    ],
)
def test_what_envoy_would_refuse_or_misread_is_named(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        replace(BOOTSTRAP, **changes)
