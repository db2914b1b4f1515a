"""The keys of the settings models as files and environment variables spell them."""

import difflib
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from config.field_types import Section
from config.settings import Settings
from config.yaml_tree import Path

ENVIRONMENT_PREFIX: Final = "SLUICEMQ_"


class Key:
    """One key of a section: a value, a subsection, or a list of subsections."""

    __slots__ = ("is_list", "name", "nullable", "section")

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
        self.nullable = type(None) in members
        self.section: type[Section] | None = None
        self.is_list = False
        for member in members:
            self.is_list = self.is_list or typing.get_origin(member) is tuple
            for candidate in (member, *typing.get_args(member)):
                if isinstance(candidate, type) and issubclass(candidate, Section):
                    self.section = candidate


@cache
def keys_of(section: type[Section]) -> dict[str, Key]:
    """Return the keys of a section, by the name a file uses, in the order of the model."""
    keys = {}
    for attribute, field in section.model_fields.items():
        name = field.validation_alias if isinstance(field.validation_alias, str) else attribute
        keys[name] = Key(name, field.annotation)
    return keys


def unknown_key_text(section: type[Section], name: str) -> str:
    """Describe a key that `section` does not have: the reason for its refusal, or that it is unknown."""
    refused = section.unsupported_keys.get(name)
    return refused or "unknown key" + did_you_mean(name, keys_of(section))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)` with the candidate most like `name`, or nothing."""
    matches = difflib.get_close_matches(name[:100], list(candidates), n=1)
    return f' (did you mean "{matches[0]}"?)' if matches else ""


def environment_name(path: Path) -> str:
    """Return the variable that sets the key at `path`: `("storage", "url")` is `SLUICEMQ_STORAGE__URL`."""
    return ENVIRONMENT_PREFIX + "__".join(str(part).upper() for part in path)


def paths(section: type[Section] = Settings, path: Path = ()) -> Iterator[tuple[Path, Key]]:
    """Yield every key outside lists, sections before what they hold."""
    for name, key in keys_of(section).items():
        yield (*path, name), key
        if key.section and not key.is_list:
            yield from paths(key.section, (*path, name))


def dotted(path: Path) -> str:
    """Write `("queues", 0, "limits")` as `queues[0].limits`; strange keys are escaped, long ones cut.

    A key is cut at a colon, too: `password:secret`, without the space, is all one key.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name, colon, rest = part.partition(":")
            part = f"{name}:..." if rest else name + colon
            word = part if part.isprintable() and part else repr(part)
            text += ("." if text else "") + (word if len(word) <= 60 else word[:57] + "...")
    return text


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
