"""Which broker commands ask, and as which user: by options, the environment, the user's file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from broker.commands.printing import refuse
from config.yaml_tree import read_yaml

URL_DEFAULT: Final = "http://127.0.0.1:15672"
URL_VARIABLE: Final = "SLUICEMQ_URL"
USER_VARIABLE: Final = "SLUICEMQ_USER"
PASSWORD_VARIABLE: Final = "SLUICEMQ_PASSWORD"  # noqa: S105


class ClientSettings(BaseModel):
    """The keys of the file: the URL of the broker's HTTP listener, user, password and virtual host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = URL_DEFAULT
    user: str | None = None
    password: SecretStr | None = None
    vhost: str | None = None


def settings_file(environment: Mapping[str, str]) -> Path:
    """Return where the user's file is: `sluicemq.yaml` in `$XDG_CONFIG_HOME`, or `~/.config`."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sluicemq.yaml"


def find_settings(
    url: str | None, user: str | None, vhost: str | None, environment: Mapping[str, str] = os.environ
) -> ClientSettings:
    """Lay options over the environment over the file. The file's user and password are for the broker of its
    URL only, and not for another user. A file that is wrong ends the command.
    """
    file = _read(settings_file(environment))
    given = url or environment.get(URL_VARIABLE)
    wanted: dict[str, Any] = {} if given and given.rstrip("/") != file.url.rstrip("/") else dict(file)
    wanted["url"] = given or file.url
    named = user or environment.get(USER_VARIABLE)
    if named and named != wanted.get("user"):
        wanted |= {"user": named, "password": None}
    if PASSWORD_VARIABLE in environment and user is None:
        wanted["password"] = SecretStr(environment[PASSWORD_VARIABLE])
    return ClientSettings(**{**wanted, "vhost": vhost or wanted.get("vhost")})


def _read(path: Path) -> ClientSettings:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ClientSettings()
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{path}: {error}")
    tree = read_yaml(text)
    for line, _, problem in tree.problems:
        refuse(f"{path}:{line or 1}: {problem}")
    try:
        found = ClientSettings.model_validate(tree.value or {})
    except ValidationError as error:
        first = error.errors()[0]
        refuse(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    if found.password is not None and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        refuse(f"{path} has a password, and others can read it: chmod 600 {path}")
    return found
