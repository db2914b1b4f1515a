"""Settings from defaults, a YAML file, the environment and the command line, telling every problem."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config import limits, schema
from config.field_types import FROM_TEXT, Section
from config.queue_settings import QueueSettings
from config.settings import Settings, duplicate_names
from config.sources import Layers
from config.yaml_tree import Path, YamlTree, read_yaml

QueueCheck = Callable[[Mapping[str, Any]], Iterable[tuple[Path, str]]]
"""Finds in an entry of `queues` what only other layers know to be wrong: where below it, and what."""


def nothing_more(entry: Mapping[str, Any]) -> Iterable[tuple[Path, str]]:
    """Find nothing: the `QueueCheck` of a file that is read without the queue manager."""
    return ()


class ConfigError(Exception):
    """The configuration cannot be used; `problems` are sentences that begin with where they are."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_settings(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    queue_check: QueueCheck = nothing_more,
) -> Settings:
    """Lay the file at `path`, `SLUICEMQ_*` variables of `env` and `overrides` (dotted key -> value, None: not
    given) over the defaults, later ones winning. Reads the file only; pass `os.environ` for the environment.
    `queue_check` is asked about each entry of `queues` as it was written, values of any type.

    Raises ConfigError with all problems: unreadable file, bad YAML, unknown or refused keys, bad values.
    """
    layers = Layers("" if path is None else os.fspath(path))
    if path is not None:
        layers.add_file(read_file(path, limits.CONFIG_FILE_BYTES_MAX))
    layers.add_environment(env or {})
    layers.add_overrides(overrides or {})
    return _validated(layers, queue_check)


def load_text(text: str, *, queue_check: QueueCheck = nothing_more) -> Settings:
    """Load as `load_settings`, from the text of a file alone; raises ConfigError."""
    layers = Layers("")
    layers.add_file(read_yaml(text))
    return _validated(layers, queue_check)


def load_queue(entry: Mapping[str, Any], *, queue_check: QueueCheck = nothing_more) -> QueueSettings:
    """Load one entry of `queues`, as a file would have it; raises ConfigError."""
    layers = Layers("")
    layers.value = {"queues": [dict(entry)]}
    try:
        return _validated(layers, queue_check).queues[0]
    except ConfigError as error:
        raise ConfigError([problem.removeprefix("queues[0].") for problem in error.problems]) from None


def default_file_text() -> str:
    """Return the commented default configuration file that comes with the package."""
    return resources.files(__package__).joinpath("default.yaml").read_text("utf-8")


def read_file(path: str | os.PathLike[str], bytes_max: int) -> YamlTree:
    """Read a YAML file; raises ConfigError when it cannot be read, is too large, or no UTF-8."""
    try:
        with open(path, "rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError([f"{os.fspath(path)}: cannot be read: {error.strerror or error}"]) from None
    if len(data) > bytes_max:
        raise ConfigError([f"{os.fspath(path)}: larger than {bytes_max} bytes"])
    try:
        return read_yaml(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{os.fspath(path)}:{line}: not UTF-8"]) from None


def _validated(layers: Layers, queue_check: QueueCheck) -> Settings:
    raw = known_keys(Settings, layers.value, (), layers)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(raw, context=FROM_TEXT)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            if details["type"] != "duplicate_queue":  # told below, entry by entry
                layers.add_problem(details["loc"], sentence(details))
    _check_queues(("queues",), raw.get("queues", ()), layers, queue_check)
    for index, vhost in enumerate(raw.get("vhosts", ())):
        if isinstance(vhost, dict):
            _check_queues(("vhosts", index, "queues"), vhost.get("queues", ()), layers, queue_check)
    listeners = raw.get("listeners")
    none_opens = listeners is not None and not any(value is not None for value in listeners.values())
    if none_opens and not layers.has_problem_under(("listeners",)):
        layers.add_problem(("listeners",), "no listener is set, so nothing could connect")
    problems = layers.problems()
    if problems or settings is None:
        raise ConfigError(problems)
    return settings


def _check_queues(place: Path, queues: Sequence[Any], layers: Layers, queue_check: QueueCheck) -> None:
    """Add what `queue_check` finds wrong with the queues of the list at `place`, and names given twice."""
    for index, entry in enumerate(queues):
        for path, what in queue_check(entry):
            layers.add_problem((*place, index, *path), what)
    names = [queue.get("name") if isinstance(queue, dict) else None for queue in queues]
    for index, name, first_index in duplicate_names(names):
        first = layers.origin((*place, first_index, "name")).text()
        layers.add_problem((*place, index, "name"), f"{name!r} is already the name of the queue at {first}")


def known_keys(section: type[Section], value: Any, path: Path, layers: Layers) -> dict[str, Any]:
    """Return the part of `value` that the models can check; keys without a place in `section` become
    problems.
    """
    if section.short_key and isinstance(value, str):
        return {section.short_key: value}
    if not isinstance(value, dict):
        layers.add_problem(path, "must be a mapping of keys to values")
        return {}
    known = {}
    keys = schema.keys_of(section)
    for name, inner in value.items():
        inner_path = (*path, name)
        key = keys.get(name)
        if key is None:
            layers.add_problem(inner_path, schema.unknown_key_text(section, name))
        elif key.section is None:
            if inner is None:
                layers.add_problem(inner_path, "has no value; leave the key out for its default")
            else:
                known[name] = inner
        elif inner is None:
            known[name] = None if key.nullable else [] if key.is_list else {}
        elif not key.is_list:
            known[name] = known_keys(key.section, inner, inner_path, layers)
        elif isinstance(inner, list):
            known[name] = [
                known_keys(key.section, entry, (*inner_path, position), layers)
                for position, entry in enumerate(inner)
            ]
        else:
            layers.add_problem(inner_path, "must be a list")
    return known


def sentence(details: ErrorDetails) -> str:
    """Describe a finding of pydantic in our words."""
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "missing":
            return "required key is missing"
        case "literal_error":
            return f"must be {context['expected'].replace(chr(39), '')}"
        case "string_type":
            return "must be text; put it in quotes"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "tuple_type":
            return "must be a list"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "less_than":
            return f"must be less than {context['lt']}"
    return details["msg"]


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
