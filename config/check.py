"""Checking a configuration file without starting anything: `sluicemq config check FILE`."""

import os
from collections.abc import Mapping

from config.settings_loader import ConfigError, QueueCheck, load_settings, load_text, nothing_more


def check_text(text: str, *, queue_check: QueueCheck = nothing_more) -> list[str]:
    """Check as `check_file`, for the text of a file and no environment."""
    try:
        load_text(text, queue_check=queue_check)
    except ConfigError as error:
        return error.problems
    return []


def check_file(
    path: str | os.PathLike[str], env: Mapping[str, str], *, queue_check: QueueCheck = nothing_more
) -> list[str]:
    """List every problem of the file at `path` under the `SLUICEMQ_*` variables of `env`, with what
    `queue_check` finds (see `load_settings`); none: usable.
    """
    try:
        load_settings(path, env, queue_check=queue_check)
    except ConfigError as error:
        return error.problems
    return []
