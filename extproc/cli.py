"""The command line. Every command is a few lines that hand over to a room."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
import uvloop
from rich.console import Console

from extproc import settings as configuration
from extproc.domain.errors import BadRequest, ConfigError, ForebayError
from extproc.envoyconfig import UsageFilter

app = typer.Typer(
    name="forebay",
    help="Admission control for LLM serving: one queue and one token limit for every Envoy gateway.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_errors = Console(stderr=True)
_STATUS_URL = "http://localhost:9090"

ConfigOption = Annotated[Path | None, typer.Option("--config", help="configuration file (YAML)")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
UrlOption = Annotated[str, typer.Option("--url", help="HTTP address of a running `forebay serve`")]


def main() -> None:
    """Run the command line; faults that name themselves end it with status 2, not with a traceback."""
    try:
        app()
    except ForebayError as error:
        _errors.print(f"forebay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


@app.command()
def serve(
    config: ConfigOption = None,
    *,
    check: Annotated[bool, typer.Option("--check", help="validate the configuration and exit")] = False,
) -> None:
    """Run the ext_proc server."""
    from extproc import app as replica  # noqa: PLC0415 - grpc and tiktoken, which other commands do without
    from extproc.ops import logs  # noqa: PLC0415

    settings = configuration.load(config)
    if check:
        typer.echo(f"{config or 'environment'}: ok")
        return
    logs.configure(settings.log.level, settings.log.format)
    _run(replica.serve(settings))


@app.command("check-config")
def check_config(file: Annotated[Path, typer.Argument(help="configuration file (YAML)")]) -> None:
    """Validate a configuration and print it with all defaults."""
    typer.echo(configuration.dump(configuration.load(file)), nl=False)


@app.command()
def demo(
    gateways: Annotated[int, typer.Option(min=1, max=16, help="Envoy + `forebay serve` each")] = 2,
    engines: Annotated[int, typer.Option(min=1, max=64, help="simulated engines")] = 2,
    config: ConfigOption = None,
    upstream: Annotated[
        list[str] | None, typer.Option(help="use this OpenAI-compatible server instead of simulated engines")
    ] = None,
    redis: Annotated[str | None, typer.Option(help="use this Redis instead of an embedded one")] = None,
    port: Annotated[int | None, typer.Option(help="port of the first gateway; others follow")] = None,
    capacity_tokens: Annotated[int | None, typer.Option(min=1, help="tokens every pool may hold")] = None,
    capacity_requests: Annotated[int | None, typer.Option(min=1, help="requests every pool may hold")] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="how much faster than real the engines run")] = 1.0,
    *,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object once ready")] = False,
) -> None:
    """Run the whole system on this machine until Ctrl-C."""
    from extproc.simulator.demo import DemoOptions, run_demo  # noqa: PLC0415 - only here

    options = DemoOptions(
        gateways=gateways,
        engines=engines,
        config=config,
        upstreams=tuple(upstream or ()),
        redis=redis,
        port=port,
        capacity_tokens=capacity_tokens,
        capacity_requests=capacity_requests,
        speed=speed,
        prints_json=json,
    )
    asyncio.run(run_demo(options))


@app.command()
def engine(
    port: Annotated[int, typer.Option(help="0 takes a free one")] = 8000,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    model: Annotated[list[str] | None, typer.Option(help="served name, repeatable; * accepts any")] = None,
    kv_tokens: Annotated[int, typer.Option(min=64, help="tokens in the KV cache")] = 200_000,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="sequences side by side")] = 128,
    max_model_len: Annotated[int, typer.Option(min=2, help="longest prompt and answer together")] = 32_768,
    scheduling_policy: Annotated[str, typer.Option(help="fcfs or priority")] = "fcfs",
    max_num_queued_reqs: Annotated[int | None, typer.Option(min=1, help="503 beyond")] = None,
    mean_output_tokens: Annotated[float, typer.Option(min=1, help="of answers that end by themselves")] = 200,
    speed: Annotated[float, typer.Option(min=0.01, help="how much faster than modelled time")] = 1.0,
    seed: Annotated[int, typer.Option(help="same seed and requests, same answers")] = 0,
) -> None:
    """Run one simulated OpenAI-compatible engine with vLLM's metrics."""
    from pydantic import ValidationError  # noqa: PLC0415

    from extproc.simulator.server import serve_engine  # noqa: PLC0415 - only here
    from extproc.simulator.settings import EngineSettings  # noqa: PLC0415

    given = {
        "kv_tokens": kv_tokens,
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "scheduling_policy": scheduling_policy,
        "max_num_queued_reqs": max_num_queued_reqs,
        "mean_output_tokens": mean_output_tokens,
        "speed": speed,
        "seed": seed,
        **({"models": tuple(model)} if model else {}),
    }
    try:
        settings = EngineSettings.model_validate(given)
    except ValidationError as error:
        raise ConfigError(str(error)) from error
    _run(serve_engine(settings, host=host, port=port, ready=lambda url: typer.echo(f"listening on {url}")))


@app.command("envoy-config")
def envoy_config(
    config: ConfigOption = None,
    listen: Annotated[str, typer.Option(help="where clients reach Envoy")] = "0.0.0.0:8080",
    extproc: Annotated[
        list[str] | None,
        typer.Option(help="host:port or unix:/path of a server; the first is ours, others take over from it"),
    ] = None,
    usage_filter: Annotated[
        UsageFilter, typer.Option(help="reads what responses took, for the estimates")
    ] = UsageFilter.AI_PROTOCOL_MANAGER,
) -> None:
    """Print an Envoy bootstrap for a gateway with `forebay serve` beside it."""
    from extproc.app.gateway import bootstrap_for  # noqa: PLC0415 - only here
    from extproc.envoyconfig import render  # noqa: PLC0415

    bootstrap = bootstrap_for(
        configuration.load(config), listen=listen, servers=extproc or (), usage_filter=usage_filter
    )
    typer.echo(render(bootstrap), nl=False)


@app.command()
def estimate(
    config: ConfigOption = None,
    model: Annotated[str | None, typer.Option(help="in place of the body's own")] = None,
    path: Annotated[str, typer.Option(help="the endpoint the body is for")] = "/v1/chat/completions",
    tenant: Annotated[str, typer.Option(help="whose habits count")] = "default",
    priority_class: Annotated[str | None, typer.Option("--class", help="else the default class")] = None,
) -> None:
    """Print what admission would reserve for the body on standard input, and why, as JSON."""
    from extproc.app.explain import Asker, explain  # noqa: PLC0415 - tiktoken, which other commands do without

    asker = Asker(path, model, tenant, priority_class)
    try:
        result = asyncio.run(explain(configuration.load(config), sys.stdin.buffer.read(), asker))
    except BadRequest as error:
        raise ConfigError(f"the body cannot be read: {error}") from error
    _print_json(result)


@app.command()
def status(url: UrlOption = _STATUS_URL, *, json: JsonOption = False) -> None:
    """Show pools, queues, leases, replicas and backends, once."""
    from extproc.admin import client  # noqa: PLC0415 - only here

    figures = asyncio.run(client.fetch_status(url))
    if json:
        _print_json(figures)
    else:
        Console().print(client.report(figures))


@app.command()
def top(
    url: UrlOption = _STATUS_URL,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="seconds between two looks")] = 1.0,
) -> None:
    """Show the same, live, until Ctrl-C."""
    from extproc.admin import client  # noqa: PLC0415 - only here

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(client.watch(url, every_s, Console()))


@app.command()
def bench(
    url: Annotated[list[str] | None, typer.Option(help="a gateway, repeatable; used in turn")] = None,
    model: Annotated[str, typer.Option(help="that the requests name")] = "llama-3.3-70b",
    rate: Annotated[float, typer.Option(min=0.01, help="requests a second, at exponential gaps")] = 10,
    duration: Annotated[float, typer.Option(min=0.1, help="seconds of sending")] = 30,
    warmup: Annotated[float, typer.Option(min=0, help="seconds of sending before, not reported")] = 0,
    load: Annotated[
        list[str] | None,
        typer.Option("--class", help="NAME=SHARE[:PROMPT_TOKENS[:OUTPUT_TOKENS]], repeatable"),
    ] = None,
    body_bytes: Annotated[
        int | None, typer.Option(min=1, help="exact size of all bodies, instead of prompt tokens")
    ] = None,
    tenants: Annotated[int, typer.Option(min=1, help="tenants that requests come from")] = 1,
    header: Annotated[list[str] | None, typer.Option(help="'name: value', repeatable; not saved")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds for one request")] = 120,
    seed: Annotated[int, typer.Option(help="same seed, same arrivals, classes and tenants")] = 0,
    save: Annotated[Path | None, typer.Option(help="write the result here, for --compare")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="send nothing: show two saved results and their ratios")
    ] = None,
    *,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="ask for streamed answers")] = True,
    json: JsonOption = False,
) -> None:
    """Send Poisson load to a running gateway and show percentiles by class, or compare two results."""
    from extproc.bench import BenchOptions, ClassLoad, Result, report, run_bench  # noqa: PLC0415 - only here

    if compare is not None:
        Console().print(report.compare(*map(Result.load, compare)))
        return
    defaults = BenchOptions()
    options = BenchOptions(
        urls=tuple(url or defaults.urls),
        model=model,
        classes=tuple(map(ClassLoad.parse, load or ())) or defaults.classes,
        rate_per_s=rate,
        duration_s=duration,
        warmup_s=warmup,
        timeout_s=timeout,
        is_streaming=stream,
        body_bytes=body_bytes,
        tenants=tenants,
        seed=seed,
        headers=BenchOptions.parse_headers(header or ()),
    )
    result = uvloop.run(run_bench(options))
    if save is not None:
        result.save(save)
    if json:
        _print_json(report.as_json(result))
    else:
        Console().print(report.show(result))
    if not result.has_answers:
        raise typer.Exit(1)


def _print_json(value: Any) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
