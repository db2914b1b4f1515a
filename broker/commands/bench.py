"""`sluicemq bench`: what a broker does on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from broker.commands.http_api import Api, AsJson, PasswordStdin, User
from broker.commands.printing import print_json, print_table, refuse

if TYPE_CHECKING:
    from broker.commands.bench_measures import Rate, Times
    from broker.commands.bench_run import Results


def bench(
    url: Annotated[
        str | None, typer.Option(help="A running broker's HTTP listener; without it one is started for this.")
    ] = None,
    user: User = None,
    password_stdin: PasswordStdin = False,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="For each of the four figures.")] = 3.0,
    devices: Annotated[int, typer.Option(min=1, max=10_000, help="MQTT devices of the fleet.")] = 50,
    directory: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Where the broker it starts stores.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: disk, confirms, throughput, a fleet of devices; everything durable."""
    from broker.commands import bench_run  # what it needs, the other commands do not
    from broker.commands.bench_clients import ClientError

    try:
        with Console(stderr=True).status("starting a broker") as status:
            if url is None:
                results = bench_run.alone(directory, seconds, devices, status.update)
            else:
                results = bench_run.beside(
                    Api(url, user, password_stdin), url, seconds, devices, status.update
                )
    except ClientError as error:
        refuse(error)
    if as_json:
        print_json(asdict(results))
    else:
        _show(results)


def _show(results: Results) -> None:
    rows: list[dict[str, Any]] = []

    def add(what: str, rate: Rate | None, times: Times | None) -> None:
        shown = {} if times is None else {"p50": f"{times.p50_ms:.3f}", "p99": f"{times.p99_ms:.3f}"}
        rows.append({"what": what, "rate": "" if rate is None else f"{rate.per_second:,}", **shown})

    if results.disk_sync is not None:
        add("disk: write 4 KiB and sync", None, results.disk_sync)
    add("AMQP, one durable message at a time, to its confirm", None, results.lone_confirm)
    add("AMQP, durable, 1 publisher to 1 consumer, 100 bytes", results.one_to_one, None)
    add(
        f"MQTT QoS 1, {results.fleet_devices} devices, one in flight each",
        results.fleet,
        results.fleet_answer,
    )
    print_table((("what", "WHAT"), ("rate", "MESSAGES/S"), ("p50", "P50 MS"), ("p99", "P99 MS")), rows)
    typer.echo(f"storage: {results.storage}; {results.seconds:g} s each")
