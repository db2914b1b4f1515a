"""YAML text to plain values, with the line of every key, and every problem rather than the first."""

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from config import limits

Path = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the root."""

_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = {_TAG + name for name in ("map", "seq", "str", "timestamp", "value")}
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_QUOTED: Final = re.compile(r"'[^'<][^']{2,}'")
"""The part of the file that a syntax error quotes, such as an alias: it may be a password that begins with
`*`.
"""
_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    _TAG + "null": _CONSTRUCTOR.construct_yaml_null,
    _TAG + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _TAG + "int": _CONSTRUCTOR.construct_yaml_int,
    _TAG + "float": _CONSTRUCTOR.construct_yaml_float,
}


class YamlTree:
    """The result of `read_yaml`."""

    __slots__ = ("lines", "problems", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.lines: dict[Path, int] = {}
        """First line (from 1) of the key, or of the list entry, at each path."""
        self.problems: list[tuple[int | None, Path, str]] = []
        """(line, path, what is wrong)."""


def read_yaml(text: str) -> YamlTree:
    """Read one YAML document of mappings, lists and scalars; never raises for what `text` holds.

    A syntax error leaves `value` None. Duplicate keys, merge keys and foreign tags are problems; dates stay
    text; aliases are followed as long as they end.
    """
    tree = YamlTree()
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        what = _QUOTED.sub("'...'", what)
        tree.problems.append((mark.line + 1 if mark else None, (), f"not YAML: {what}"))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        tree.problems.append((line, (), f"not YAML: character U+{ord(text[error.position]):04X}"))
    except RecursionError:
        tree.problems.append((None, (), "not read: nested too deeply"))
    else:
        if node is not None:
            try:
                tree.value = _Builder(tree).value_of(node, (), 0)
            except _TooMuch as too_much:
                tree.problems.append((too_much.line, (), str(too_much)))
    return tree


class _TooMuch(Exception):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class _Builder:
    __slots__ = ("_aliased_left", "_seen", "tree", "values_left")

    def __init__(self, tree: YamlTree) -> None:
        self._seen: set[int] = set()
        self._aliased_left = limits.CONFIG_ALIASED_VALUES_MAX
        self.tree = tree
        self.values_left = limits.CONFIG_VALUES_MAX

    def value_of(self, node: yaml.Node, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.values_left -= 1
        if self.values_left < 0:
            raise _TooMuch(line, f"more than {limits.CONFIG_VALUES_MAX} values")
        if id(node) in self._seen:
            self._aliased_left -= 1
            if self._aliased_left < 0:
                raise _TooMuch(line, f"more than {limits.CONFIG_ALIASED_VALUES_MAX} values by aliases")
        self._seen.add(id(node))
        if depth > limits.CONFIG_DEPTH_MAX:  # also where an alias that contains itself ends
            raise _TooMuch(line, f"nested more than {limits.CONFIG_DEPTH_MAX} levels deep")
        self.tree.lines.setdefault(path, line)
        if node.tag not in _PLAIN_TAGS and node.tag not in _SCALARS:
            name = node.tag if node.tag.startswith(_TAG) else "!..."
            self.tree.problems.append((line, path, f"YAML tag {name} is not supported; quotes make it text"))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value_of(entry, (*path, position), depth + 1)
                for position, entry in enumerate(node.value)
            ]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.tree.problems.append((line, path, "a key must be a word"))
            elif key_node.tag == _TAG + "merge":
                self.tree.problems.append((line, path, "merge keys (<<) are not supported"))
            elif key_node.value in values:
                first_line = self.tree.lines[(*path, key_node.value)]
                what = f"duplicate key, first on line {first_line}"
                self.tree.problems.append((line, (*path, key_node.value), what))
            else:
                key = key_node.value
                self.tree.lines[(*path, key)] = line
                values[key] = self.value_of(value_node, (*path, key), depth + 1)
        return values


def _scalar(node: yaml.Node) -> Any:
    try:
        return _SCALARS[node.tag](node) if node.tag in _SCALARS else node.value
    except (ValueError, KeyError):
        return node.value  # the text does not live up to its tag; the field says what it wants
