"""Layers of configuration laid over one another: file, then environment, then command line."""

from collections.abc import Mapping
from typing import Any, Final

from config import schema
from config.field_types import Section
from config.settings import Settings
from config.yaml_tree import Path, YamlTree, read_yaml

ENVIRONMENT_SWITCHES: Final = frozenset(
    {"SLUICEMQ_FAST_BATCH", "SLUICEMQ_URL", "SLUICEMQ_USER", "SLUICEMQ_PASSWORD"}
)
"""Variables with the prefix that other modules read and that are no settings."""

COMMAND_LINE: Final = "command line"
_FILE, _ENVIRONMENT, _COMMAND_LINE = range(3)


class Origin:
    """Where a value was written, for messages and for their order."""

    __slots__ = ("label", "line", "rank")

    def __init__(self, rank: int, label: str, line: int = 0) -> None:
        self.rank = rank
        self.label = label
        self.line = line

    def order(self) -> tuple[int, int, str]:
        """Sort as a reader goes: down the file, then by variable, then the command line."""
        return self.rank, self.line, self.label

    def text(self) -> str:
        """Return `file:line`, the variable, or the command line."""
        return f"{self.label}:{self.line}" if self.line else self.label


class Layers:
    """The merged raw values, where each came from, and what was wrong with the text of any layer."""

    __slots__ = ("_complained", "_file_label", "_origins", "_problems", "value")

    def __init__(self, file_label: str) -> None:
        self._file_label = file_label
        self._origins: dict[Path, Origin] = {}
        self._problems: list[tuple[Origin, Path, str]] = []
        self._complained: set[Path] = set()
        self.value: Any = {}

    def add_file(self, tree: YamlTree) -> None:
        """Add the lowest layer; an empty document leaves every default."""
        for path, line in tree.lines.items():
            self._origins[path] = Origin(_FILE, self._file_label, line)
        for problem_line, path, what in tree.problems:
            self._problems.append((Origin(_FILE, self._file_label, problem_line or 0), path, what))
        self.value = {} if tree.value is None else tree.value

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Add variables: `SLUICEMQ_A__B` sets key `a.b`; one that names a section or a list holds YAML."""
        names = [name for name in environment if name.startswith(schema.ENVIRONMENT_PREFIX)]
        for name in sorted(names, key=lambda name: (name.count("__"), name)):  # sections before their keys
            if name in ENVIRONMENT_SWITCHES:
                continue
            origin = Origin(_ENVIRONMENT, name)
            found = _key_of_variable(name)
            if isinstance(found, str):
                self._problems.append((origin, (), found))
                continue
            path, key = found
            value: Any = environment[name]
            if key.section:
                tree = read_yaml(value)
                for _, inner_path, what in tree.problems:
                    self._problems.append((origin, (*path, *inner_path), what))
                value = tree.value
            self._put(path, value, origin)

    def add_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Add values by dotted key, None meaning not given; unknown keys show when the whole is checked."""
        for name, value in overrides.items():
            if value is not None:
                self._put(tuple(name.split(".")), value, Origin(_COMMAND_LINE, COMMAND_LINE))

    def add_problem(self, path: Path, what: str) -> None:
        """Note a problem of the value at `path`, unless it or its section had one already."""
        if not any(path[:length] in self._complained for length in range(len(path) + 1)):
            self._complained.add(path)
            self._problems.append((self.origin(path), path, what))

    def has_problem_under(self, path: Path) -> bool:
        """Return whether anything at or below `path` was complained about."""
        return any(noted[: len(path)] == path for _, noted, _ in self._problems)

    def origin(self, path: Path) -> Origin:
        """Return where the value at `path`, or the nearest section around it, was written."""
        for length in range(len(path), -1, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                return origin
        return Origin(_FILE, self._file_label)

    def problems(self) -> list[str]:
        """List `file:line: key: what is wrong`, in the order of the file, then variables, then command
        line.
        """
        ordered = sorted(self._problems, key=lambda problem: problem[0].order())
        return [
            ": ".join(part for part in (origin.text(), schema.dotted(path), what) if part)
            for origin, path, what in ordered
        ]

    def _put(self, path: Path, value: Any, origin: Origin) -> None:
        if not isinstance(self.value, dict):
            return  # the file is no mapping, which is told already
        if path[0] == "listeners" and "listeners" not in self.value:
            # no file spoke of them: the default opens these
            self.value["listeners"] = {"mqtt": {}, "amqp": {}, "http": {}}
        section = self.value
        for part in path[:-1]:
            inner = section.get(part)
            if inner is None:
                inner = section[part] = {}
            if not isinstance(inner, dict):
                return
            section = inner
        section[path[-1]] = value
        for known in [known for known in self._origins if known[: len(path)] == path]:
            del self._origins[known]
        self._origins[path] = origin


def _key_of_variable(name: str) -> tuple[Path, schema.Key] | str:
    """Return the key that a variable sets, or the problem with the variable."""
    section: type[Section] | None = Settings
    path: Path = ()
    key: schema.Key | None = None
    for part in name.removeprefix(schema.ENVIRONMENT_PREFIX).split("__"):
        lower = part.lower()
        if section and part == part.upper() and lower in section.unsupported_keys:
            return section.unsupported_keys[lower]
        key = schema.keys_of(section).get(lower) if section and part == part.upper() else None
        if key is None:
            known = [schema.environment_name(path) for path, _ in schema.paths()]
            return "unknown variable" + schema.did_you_mean(name, known)
        path = (*path, lower)
        section = None if key.is_list else key.section
    assert key is not None  # split gives at least one part
    return path, key
