"""The users file: reading it, and writing it anew in one go."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from config import limits
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.settings_loader import ConfigError, known_keys, read_file, sentence
from config.sources import Layers

_HEADER = "# Users of a SluiceMQ broker; `sluicemq user` writes this file. Reload the broker by SIGHUP.\n"


def load_users(path: str | os.PathLike[str]) -> UsersSettings:
    """Load the users of the file at `path`; raises ConfigError with all problems, each with its line."""
    layers = Layers(os.fspath(path))
    layers.add_file(read_file(path, limits.USERS_FILE_BYTES_MAX))
    raw = known_keys(UsersSettings, layers.value, (), layers)
    users = None
    try:
        users = UsersSettings.model_validate(raw)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            layers.add_problem(details["loc"], sentence(details))
    problems = layers.problems()
    if problems or users is None:
        raise ConfigError(problems)
    return users


def save_users(path: str | os.PathLike[str], users: UsersSettings) -> None:
    """Write the users to `path`: nobody sees half a file, and nobody but its owner can read it.

    Raises OSError.
    """
    target = Path(path)
    text = _HEADER + yaml.safe_dump(
        {"users": [_plain(user) for user in users.users]}, sort_keys=False, allow_unicode=True, width=1_000
    )
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other commands from changing the file meanwhile. Raises OSError."""
    directory = os.open(Path(path).absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _plain(user: UserSettings) -> dict[str, Any]:
    """Return a section as a file has it: what is not there is not written, but of a permission every right
    is.
    """
    plain = user.model_dump(mode="json", exclude_defaults=True)
    plain["permissions"] = [_plain_permission(permission) for permission in user.permissions]
    return plain


def _plain_permission(permission: PermissionSettings) -> dict[str, Any]:
    plain = permission.model_dump(mode="json", exclude_defaults=True)
    rights = {name: getattr(permission, name) for name in ("vhost", "configure", "write", "read")}
    return {**rights, **plain}
