"""The configuration over HTTP: what is in force, and whether a file would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from broker.engine.group_settings import problems_of
from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery
from broker.http.site import Site
from broker.reloading import Reloaded
from config.check import check_text

configuration: Final = Endpoints("configuration")


class ConfigurationText(Body):
    """A configuration file."""

    text: str


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with a file, a sentence each, with its line; nothing: it can be used."""

    problems: list[str]


@configuration.get("/configuration", dict[str, Any])
async def show_configuration(site: Site, ask: Ask[NoQuery, NoBody]) -> dict[str, Any]:
    """The settings in force, with every default."""
    return site.settings.model_dump(mode="json")


@configuration.post("/configuration/reload", Reloaded)
async def reload_configuration(site: Site, ask: Ask[NoQuery, NoBody]) -> Reloaded:
    """Read the configuration, users and certificates anew, as at SIGHUP."""
    return await site.admin.reload()


@configuration.post("/configuration/check", Problems, ConfigurationText)
async def check_configuration(site: Site, ask: Ask[NoQuery, ConfigurationText]) -> Problems:
    """What is wrong with a configuration file; nothing is changed."""
    return Problems(check_text(ask.body.text, queue_check=problems_of))
