"""Checking a configuration file without starting anything: `sluicemq config check FILE`."""

import os
from collections.abc import Mapping

from config.loader import ConfigError, load_settings


def check_file(path: str | os.PathLike[str], env: Mapping[str, str]) -> list[str]:
    """Every problem of the file at `path` under the `SLUICEMQ_*` variables of `env`; none: usable."""
    try:
        load_settings(path, env)
    except ConfigError as error:
        return error.problems
    return []
