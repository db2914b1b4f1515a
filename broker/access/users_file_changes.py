"""Changes of the users file, by commands and over HTTP: one after the other, each written whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.access.passwords import hashed
from broker.access.scram import make_verifier
from config.access_settings import UserSettings, UsersSettings
from config.users_file import load_users, locked, save_users

Change = Callable[[list[UserSettings]], list[UserSettings]]


def change_users(path: Path, change: Change, *, may_create: bool = False) -> None:
    """Write what `change` makes of the users in a file; whoever else changes it waits meanwhile.

    Raises ConfigError for a file that cannot be read as one, pydantic's ValidationError for users that do not
    go together, OSError; then it stays as it was.
    """
    with locked(path):
        users = UsersSettings() if may_create and not path.exists() else load_users(path)
        save_users(path, UsersSettings(users=tuple(change(list(users.users)))))


def kept_of(password: bytes, *, scram: bool) -> dict[str, str | None]:
    """Return the fields of a user that a password is kept in. Takes tens of ms of a processor."""
    return {"password": hashed(password), "scram": make_verifier(password) if scram else None}
