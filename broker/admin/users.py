"""Accounts, changed while the broker runs: the users file is written, and read again at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import ValidationError

from broker.access.access import Access
from broker.access.accounts_of_file import UserView
from broker.access.login import ADMINISTRATOR
from broker.access.users_file_changes import Change, change_users, kept_of
from config.access_settings import PermissionSettings, Tag, UserSettings
from config.settings import Settings
from config.settings_loader import ConfigError, sentence
from queue_manager.errors import InvalidArgument, PreconditionFailed, QueueManagerError

_log: Final = structlog.get_logger("sluicemq.access")


class UserNotFound(QueueManagerError):
    """There is no user of that name in the users file."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no user {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """The wanted state of an account; None: as it is, or empty for a new one. Of the password hashes are
    kept, with `scram` one for SCRAM-SHA-256, too. `password_hash` is one that was made elsewhere; "": nobody
    comes in by a password. `quotas` are those to change, by their settings.
    """

    password: bytes | None = None
    password_hash: str | None = None
    scram: bool | None = None
    tags: tuple[Tag, ...] | None = None
    permissions: tuple[PermissionSettings, ...] | None = None
    certificates: tuple[str, ...] | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)


class UserAdmin:
    """Makes, changes and removes the accounts of the users file. `told` has other processes that go by it
    read it, too, with who changed it.
    """

    def __init__(
        self,
        access: Access,
        settings: Callable[[], Settings],
        told: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._access = access
        self._settings = settings
        self._told = told

    def view(self, name: str) -> UserView:
        """Return what may be shown of a user. Raises UserNotFound."""
        users = self._access.users
        if users is None or name not in users.names:
            raise UserNotFound(name)
        return users.view(name)

    async def put(self, name: str, change: UserChange, by: str = "") -> UserView:
        """Make the user, or change what `change` has; who may do less then is sent away. `by`: for the log.

        Raises InvalidArgument, also where there is no users file, and PreconditionFailed when nobody would be
        left who administers.
        """
        if change.scram and change.password is None:
            raise InvalidArgument("scram needs the password")

        def changed(users: list[UserSettings]) -> list[UserSettings]:
            before = next((user for user in users if user.name == name), None)
            user = _changed(name, before, change)
            if before is None:
                return [*users, user]
            return [user if each is before else each for each in users]

        await self._write(changed, by)
        _log.info("user.put", user=name, by=by)
        return self.view(name)

    async def edit(self, name: str, change: Callable[[UserSettings], UserSettings], by: str = "") -> None:
        """Have what `change` makes of a user, as the user is when it is called; in a thread.

        Raises UserNotFound, and what `put` raises.
        """
        self.view(name)
        await self._write(lambda users: [change(user) if user.name == name else user for user in users], by)
        _log.info("user.put", user=name, by=by)

    async def add_all(self, wanted: Sequence[UserSettings], by: str = "") -> list[str]:
        """Make the users that are not there; returns the names of those that are there in another way, which
        stay. Raises what `put` raises.
        """
        others: list[str] = []

        def added(users: list[UserSettings]) -> list[UserSettings]:
            present = {user.name: user for user in users}
            others[:] = [user.name for user in wanted if present.get(user.name, user) != user]
            return [*users, *[user for user in wanted if user.name not in present]]

        await self._write(added, by)
        _log.info("users.added", count=len(wanted) - len(others), by=by)
        return others

    async def remove(self, name: str, by: str = "") -> None:
        """Remove a user; their connections end.

        Raises UserNotFound, and PreconditionFailed when nobody would be left who administers.
        """
        self.view(name)
        await self.remove_all((name,), by)

    async def remove_all(self, names: Collection[str], by: str = "") -> None:
        """Remove those of the users that are there, as `remove` does."""
        await self._write(lambda users: [user for user in users if user.name not in names], by)
        for name in names:
            _log.info("user.removed", user=name, by=by)

    def kept(self) -> list[UserSettings]:
        """Return all accounts of the users file, with their hashes."""
        users = self._access.users
        return [] if users is None else users.kept()

    async def _write(self, change: Change, by: str) -> None:
        settings = self._settings().access
        if not settings.users_file:
            raise InvalidArgument("there is no users file: access.users_file names one")

        def checked(users: list[UserSettings]) -> list[UserSettings]:
            changed = change(users)
            if _has_administrator(users) and not _has_administrator(changed):
                raise PreconditionFailed("nobody would be left who administers the broker")
            return changed

        try:
            # a password is hashed there, and another command may hold the file
            await asyncio.to_thread(change_users, Path(settings.users_file), checked)
            await self._access.take(self._access.prepare(self._settings().access), by)
            if self._told is not None:
                await self._told(by)
        except ConfigError as error:
            raise InvalidArgument(str(error)) from None
        except ValidationError as error:
            raise InvalidArgument(told_of(error)) from None
        except OSError as error:
            raise InvalidArgument(f"the users file cannot be written: {error.strerror or error}") from None


def _changed(name: str, before: UserSettings | None, change: UserChange) -> UserSettings:
    fields: dict[str, Any] = {}
    if before is not None:
        fields = {key: getattr(before, key) for key in UserSettings.model_fields}
    fields["name"] = name
    fields.update(change.quotas)
    for key in ("tags", "permissions", "certificates"):
        value = getattr(change, key)
        if value is not None:
            fields[key] = value
    if change.password_hash is not None:
        fields.update(password=change.password_hash or None, scram=None)
    if change.password is not None:
        had_scram = before is not None and before.scram is not None
        scram = had_scram if change.scram is None else change.scram
        fields.update(kept_of(change.password, scram=scram))
    return UserSettings.model_validate(fields)


def _has_administrator(users: list[UserSettings]) -> bool:
    return any(ADMINISTRATOR in user.tags for user in users)


def told_of(error: ValidationError) -> str:
    """Return the problem, without what was given: that may be a secret."""
    return "; ".join(sentence(details) for details in error.errors(include_url=False, include_input=False))
