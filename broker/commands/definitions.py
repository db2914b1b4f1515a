"""`sluicemq export` and `sluicemq import`: definitions, as RabbitMQ's JSON has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from pydantic import ValidationError

from broker.commands.http_api import Api, AsJson, segment, with_api
from broker.commands.printing import EXIT_REFUSED, print_json
from config.access_settings import PermissionSettings, Tag, UserSettings, UsersSettings
from config.settings_loader import ConfigError
from config.users_file import load_users, locked, save_users

Output = Annotated[Path | None, typer.Argument(help="A file; without one, standard output.")]

OfVhost = Annotated[
    str | None, typer.Option("--vhost", help="Only what is in this virtual host; of a file all goes there.")
]

_PATTERNS: Final = ("configure", "write", "read")


def export(api: Api, output: Output = None, vhost: OfVhost = None) -> None:
    """Write what was declared (virtual hosts, queues, exchanges, bindings) as RabbitMQ's tools have it."""
    text = json.dumps(api.call("GET", _path(vhost), prefix="/api"), indent=2, ensure_ascii=False)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", "utf-8")


def import_definitions(
    api: Api,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What `export` wrote.")],
    users: Annotated[
        Path | None,
        typer.Option(help="A users file: accounts and permissions go there, without their passwords."),
    ] = None,
    vhost: OfVhost = None,
    as_json: AsJson = False,
) -> None:
    """Make what a file of definitions has, also one of RabbitMQ; what is there already stays."""
    try:
        document = json.loads(file.read_text("utf-8"))
        accounts = [] if users is None else _accounts(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from None
    told = api.call("POST", _path(vhost), query={"verbose": "true"}, body=document, prefix="/api")
    left: list[str] = told["not_taken"]
    if users is not None:
        left = [line for line in left if not line.startswith(("users:", "permissions:"))]
        told["made"]["users"], problems = _add_accounts(users, accounts)
        left += problems
    if as_json:
        print_json({"made": told["made"], "not_taken": left})
        return
    typer.echo("made or found: " + ", ".join(f"{count} {kind}" for kind, count in told["made"].items()))
    for line in left:
        typer.echo(f"not taken: {line}", err=True)


def _path(vhost: str | None) -> str:
    return "/definitions" if vhost is None else f"/definitions/{segment(vhost)}"


def _accounts(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the users of a document as a users file has them; may raise what broken documents come to."""
    accounts = []
    for user in document.get("users", []):
        tags = user.get("tags", [])
        named = tags.split(",") if isinstance(tags, str) else list(tags)
        permissions = [
            {"vhost": each["vhost"], **{action: each.get(action, "") for action in _PATTERNS}}
            for each in document.get("permissions", [])
            if each["user"] == user["name"]
        ]
        known = [tag for tag in named if tag in get_args(Tag)]
        accounts.append({"name": user["name"], "tags": tuple(known), "permissions": permissions})
    return accounts


def _add_accounts(file: Path, accounts: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Add those that are not there; how many it were, and what could not be taken of which."""
    problems: list[str] = []
    try:
        with locked(file):
            present = load_users(file).users if file.exists() else ()
            names = {user.name for user in present}
            added = []
            for account in accounts:
                if account["name"] in names:
                    problems.append(f"user {account['name']}: is there already")
                    continue
                try:
                    added.append(_account(account))
                except ValidationError as error:
                    problems.append(f"user {account['name']}: {error.errors()[0]['msg']}")
            save_users(file, UsersSettings(users=(*present, *added)))
    except ConfigError as error:
        problems = error.problems
    except OSError as error:
        problems = [f"{file}: {error.strerror or error}"]
    else:
        problems += [
            f"password of {user.name}: RabbitMQ's hash is not taken; `sluicemq user passwd` sets one"
            for user in added
        ]
        return len(added), problems
    for problem in problems:
        typer.echo(f"sluicemq: {problem}", err=True)
    raise typer.Exit(EXIT_REFUSED)


def _account(account: dict[str, Any]) -> UserSettings:
    permissions = tuple(PermissionSettings.model_validate(each) for each in account["permissions"])
    return UserSettings.model_validate({**account, "permissions": permissions})


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "export": with_api(export),
    "import": with_api(import_definitions),
}
