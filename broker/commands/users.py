"""`sluicemq user`: the users file, changed in place; a running broker reads it again at SIGHUP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from pydantic import ValidationError

from broker.access.users_file_changes import Change, change_users, kept_of
from broker.commands.http_api import AsJson, PasswordStdin
from broker.commands.printing import print_found, refuse
from config import limits
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.settings_loader import ConfigError
from config.users_file import load_users

app = typer.Typer(help="Work with the users file.", no_args_is_help=True)

EXIT_CONFIG: Final = 2
_WHEN: Final = "a running broker takes it up at `sluicemq config reload`"

File = Annotated[Path, typer.Option("--file", help="The users file (YAML).")]
Name = Annotated[str, typer.Argument(help="The user's name.")]
Pattern = Annotated[str | None, typer.Option(help="A regular expression of names.")]


@app.command("add")
def add(
    name: Name,
    file: File,
    password_stdin: PasswordStdin = False,
    tag: Annotated[
        list[str] | None, typer.Option(help="administrator or monitoring; may be repeated.")
    ] = None,
    vhost: Annotated[str, typer.Option(help="The virtual host that the patterns are for.")] = "/",
    scram: Annotated[
        bool, typer.Option("--scram", help="Also for MQTT 5's SCRAM-SHA-256, which keeps a weaker hash.")
    ] = False,
    configure: Pattern = None,
    write: Pattern = None,
    read: Pattern = None,
) -> None:
    """Add a user. Without patterns everything in the virtual host is allowed; with some, nothing else is."""
    patterns = {"configure": configure, "write": write, "read": read}
    given = {action: pattern for action, pattern in patterns.items() if pattern is not None}
    granted = given or dict.fromkeys(patterns, ".*")
    password = _read_password(name, password_stdin)
    try:
        permission = PermissionSettings.model_validate({"vhost": vhost, **granted})
        user = UserSettings.model_validate(
            {"name": name, **kept_of(password, scram=scram), "tags": tag or (), "permissions": (permission,)}
        )
    except ValidationError as error:
        refuse("; ".join(f"{details['loc'][0]}: {details['msg']}" for details in error.errors()))

    def change(users: list[UserSettings]) -> list[UserSettings]:
        if any(other.name == name for other in users):
            refuse(f"there is a user {name!r} already; `passwd` changes the password")
        return [*users, user]

    _change(file, change, may_create=True)
    typer.echo(f"user {name} added to {file}; {_WHEN}")


@app.command("passwd")
def passwd(
    name: Name,
    file: File,
    password_stdin: PasswordStdin = False,
    scram: Annotated[bool, typer.Option("--scram", help="Also for MQTT 5's SCRAM-SHA-256.")] = False,
) -> None:
    """Change a user's password."""
    password = _read_password(name, password_stdin)

    def change(users: list[UserSettings]) -> list[UserSettings]:
        _check_there(users, name)
        return [
            user.model_copy(update=kept_of(password, scram=scram or user.scram is not None))
            if user.name == name
            else user
            for user in users
        ]

    _change(file, change)
    typer.echo(f"password of {name} changed in {file}; {_WHEN}")


@app.command("rm")
def remove(name: Name, file: File) -> None:
    """Remove a user."""

    def change(users: list[UserSettings]) -> list[UserSettings]:
        _check_there(users, name)
        return [user for user in users if user.name != name]

    _change(file, change)
    typer.echo(f"user {name} removed from {file}; {_WHEN}")


@app.command("ls")
def list_users(file: File, as_json: AsJson = False) -> None:
    """List the users and what they may do."""
    rows = [
        {
            "name": user.name,
            "tags": ", ".join(user.tags),
            "vhost": permission.vhost,
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
            "acl": ", ".join(permission.acl),
        }
        for user in _load(file).users
        for permission in user.permissions or (PermissionSettings(vhost=""),)
    ]
    keys = ("name", "tags", "vhost", "configure", "write", "read", "acl")
    print_found(rows, [(key, key) for key in keys], as_json=as_json)


def _change(file: Path, change: Change, *, may_create: bool = False) -> None:
    try:
        change_users(file, change, may_create=may_create)
    except OSError as error:
        refuse(f"{file}: {error.strerror or error}")
    except ConfigError as error:
        _refuse_file(error)


def _load(file: Path) -> UsersSettings:
    try:
        return load_users(file)
    except ConfigError as error:
        _refuse_file(error)


def _refuse_file(error: ConfigError) -> NoReturn:
    for problem in error.problems:
        typer.echo(problem, err=True)
    raise typer.Exit(EXIT_CONFIG) from None


def _read_password(name: str, from_stdin: bool) -> bytes:
    if from_stdin:
        password = (
            sys.stdin.buffer.read(limits.PASSWORD_BYTES_MAX + 2).removesuffix(b"\n").removesuffix(b"\r")
        )
    else:
        asked = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        password = str(asked).encode()
    if not 1 <= len(password) <= limits.PASSWORD_BYTES_MAX:
        refuse(f"a password has 1 to {limits.PASSWORD_BYTES_MAX} bytes")
    return password


def _check_there(users: list[UserSettings], name: str) -> None:
    if all(user.name != name for user in users):
        refuse(f"there is no user {name!r}")
