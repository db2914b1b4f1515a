"""The `sluicemq` command: `serve`, `config`, and what talks to a running broker.

The broker and its core are imported by the commands that need them: the others only ask one that runs.
"""

from __future__ import annotations

import gc
import os
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import typer

from broker.commands import (
    backups,
    bans,
    bench,
    connections,
    definitions,
    exchanges,
    groups,
    link_commands,
    migrate,
    nodes,
    operating,
    policies,
    queues,
    quotas,
    storage_keys,
    store_merging,
    stored_data,
    tls,
    users,
    vhosts,
)
from broker.commands.http_api import with_api
from broker.process.systemd_unit import systemd
from broker.version import PRODUCT, VERSION
from config.settings_loader import ConfigError, check_file, default_file_text, load_settings

app = typer.Typer(
    name="sluicemq",
    help=f"{PRODUCT}: MQTT devices publish, AMQP workers consume, everything durable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Work with configuration files.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.command("systemd")(systemd)
app.command("bench")(bench.bench)
app.add_typer(queues.app, name="queue")
app.add_typer(groups.app, name="group")
app.add_typer(exchanges.app, name="exchange")
app.add_typer(exchanges.bindings, name="binding")
app.add_typer(policies.app, name="policy")
app.add_typer(quotas.app, name="quota")
app.add_typer(bans.app, name="ban")
app.add_typer(nodes.app, name="node")
app.add_typer(nodes.shard_app, name="shard")
app.add_typer(link_commands.shovels, name="shovel")
app.add_typer(link_commands.webhooks, name="webhook")
app.add_typer(link_commands.upstreams, name="upstream")
app.add_typer(vhosts.app, name="vhost")
app.add_typer(connections.app, name="connection")
app.add_typer(connections.sessions, name="session")
stored_data.app.command("keys")(with_api(storage_keys.store_keys))
stored_data.app.command("merge")(store_merging.merge_store)
app.add_typer(stored_data.app, name="store")
app.command("pub")(with_api(queues.publish, in_vhost=True))
_TOP: Final = (operating.COMMANDS, definitions.COMMANDS, backups.COMMANDS, migrate.COMMANDS)
for name, command in chain.from_iterable(each.items() for each in _TOP):
    app.command(name)(command)
config_app.command("show")(with_api(operating.show_config))
config_app.command("reload")(with_api(operating.reload_config))
app.add_typer(users.app, name="user")
app.add_typer(tls.app, name="tls")

EXIT_CONFIG = 2  # as sysexits' usage errors; 1 is a failure while running


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{PRODUCT} {VERSION}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """SluiceMQ."""


@app.command("serve")
def _serve(
    config: Annotated[Path | None, typer.Option(help="Configuration file (YAML).")] = None,
    storage: Annotated[str | None, typer.Option(help="A directory, memory:, or s3://bucket/prefix.")] = None,
    mqtt: Annotated[int | None, typer.Option(help="MQTT port; 0 takes any free one.")] = None,
    amqp: Annotated[int | None, typer.Option(help="AMQP port; 0 takes any free one.")] = None,
    http: Annotated[int | None, typer.Option(help="HTTP port; 0 takes any free one.")] = None,
    mqcore: Annotated[int | None, typer.Option(help="MQ-Core port; 0 takes any free one.")] = None,
    workers: Annotated[
        str | None, typer.Option(help="How many processes share the work: a number, or auto.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written (JSON: pid, ports) when the broker serves.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="End another broker that has the storage open.")
    ] = False,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C. Flags win over the environment, that over the file."""
    gc.disable()  # nothing of what is imported goes
    from broker import serve
    from broker.engine.group_settings import problems_of

    gc.freeze()
    gc.enable()
    overrides = {
        "workers": workers,
        "storage.url": storage,
        "listeners.mqtt.port": mqtt,
        "listeners.amqp.port": amqp,
        "listeners.http.port": http,
        "listeners.mqcore.port": mqcore,
    }
    load = partial(load_settings, config, os.environ, overrides, queue_check=problems_of)
    try:
        settings = load()
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    raise typer.Exit(serve.run(settings, load, ready_file, take_over=take_over))


@config_app.command("check")
def _check(file: Annotated[Path, typer.Argument(help="Configuration file (YAML).")]) -> None:
    """Say what is wrong with a configuration file, with line numbers; exit 0 if nothing is."""
    from broker.engine.group_settings import problems_of

    problems = check_file(file, os.environ, queue_check=problems_of)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(EXIT_CONFIG)
    typer.echo(f"{file}: ok")


@config_app.command("default")
def _default() -> None:
    """Print a configuration file with every key at its default, and what it means."""
    typer.echo(default_file_text(), nl=False)
