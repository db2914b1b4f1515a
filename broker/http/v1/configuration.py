"""The configuration over HTTP: what is in force, and whether a file would do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from broker.admin.reloading import Reloaded
from broker.engine.group_settings import problems_of
from broker.http.endpoints import Endpoints
from broker.http.site import Site
from config import limits
from config.settings_loader import check_text

configuration: Final = Endpoints("configuration")


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of a file, a sentence each, with its line; nothing: it can be used."""

    problems: list[str]


@configuration.endpoint("GET", "/configuration")
async def show_configuration(site: Site) -> dict[str, Any]:
    """Show the settings in force, with every default."""
    return site.admin.settings.model_dump(mode="json")


@configuration.endpoint("POST", "/configuration/reload")
async def reload_configuration(site: Site) -> Reloaded:
    """Read the configuration, users and certificates anew, as at SIGHUP."""
    return await site.admin.reload()


@configuration.endpoint("POST", "/configuration/check")
async def check_configuration(site: Site, *, text: str) -> Problems:
    """Tell what is wrong with a configuration file; nothing is changed."""
    bytes_max = limits.CONFIG_CHECK_BYTES_MAX
    if len(text.encode("utf-8", "replace")) > bytes_max:
        return Problems([f"larger than {bytes_max} bytes: `sluicemq config check FILE` checks it"])
    # reading YAML takes seconds per megabyte
    return Problems(await asyncio.to_thread(check_text, text, queue_check=problems_of))
