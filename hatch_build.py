"""Builds the wheel: what are folders at the root here becomes one package, `sluicemq`, where it is installed.

Installed as they are the folders would take names such as `config` and `storage` from everybody else, and
lose them to whoever has a `config.py` in the working directory. So the wheel has them inside `sluicemq`, with
their imports of each other rewritten.

Where a C compiler is, the wheel has what is in C compiled, and is for this platform. Otherwise, and with
SLUICEMQ_BUILD=pure, it is for every platform, and the same is done in Python.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "sluicemq"
FOLDERS: Final = ("broker", "protocols", "queue_manager", "storage", "config", "examples")
COMPILE: Final = "storage/native/compiling.py"
SWITCH: Final = "SLUICEMQ_BUILD"
IN_THE_CHECKOUT_ONLY: Final = f"{PACKAGE}/examples/"  # leads to the folder that the wheel has in its place

_FROM: Final = re.compile(rb"from[ \t]+")


class PackageHook(BuildHookInterface[Any]):
    """Maps every file of the folders into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the rewritten modules and name all files; an editable installation takes the folders as they
        are.
        """
        if version == "editable":
            return
        self._rewritten = tempfile.TemporaryDirectory(prefix="sluicemq-wheel-")
        root = Path(self.root)
        for name, target in packed_files(root):
            source = root / name
            if source.suffix == ".py":
                text = rewritten(source.read_bytes(), name)
                source = Path(self._rewritten.name, target)
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_bytes(text)
            build_data["force_include"][str(source)] = target
        if os.environ.get(SWITCH, "").lower() != "pure":
            self._compile(root, build_data)

    def _compile(self, root: Path, build_data: dict[str, Any]) -> None:
        compiling = runpy.run_path(str(root / COMPILE))
        made = Path(self._rewritten.name, PACKAGE)
        problem = compiling["compile_all"](made)
        if problem is not None:
            self.app.display_warning(f"a wheel without C, for every platform: {problem}")
            return
        for compiled in compiling["COMPILED"]:
            build_data["force_include"][str(made / compiled)] = f"{PACKAGE}/{compiled}"
        build_data["pure_python"] = False
        platform = re.sub(r"[^a-z0-9]", "_", sysconfig.get_platform().lower())
        build_data["tag"] = f"{compiling['LIMITED_API_OF']}-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for the wheel."""
        if version != "editable":
            self._rewritten.cleanup()


def packed_files(root: Path) -> Iterator[tuple[str, str]]:
    """Each file the wheel takes, below `root`, and its name in the wheel."""
    for folder in (PACKAGE, *FOLDERS):
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            left_out = (
                "__pycache__" in path.parts or path.suffix == ".so" or name.startswith(IN_THE_CHECKOUT_ONLY)
            )
            if path.is_dir() or left_out:
                continue
            yield name, name if folder == PACKAGE else f"{PACKAGE}/{name}"


def rewritten(source: bytes, name: str) -> bytes:
    """Return a module's source with imports of the folders' modules from the package.

    Raises ValueError for `import broker.app`: it binds `broker`, which the rest of the module would go on
    using.
    """
    places: list[tuple[int, int]] = []  # line from 1, byte in it: where the package's name goes
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_ours(node.module or ""):
            begin = _FROM.match(lines[node.lineno - 1], node.col_offset)
            if begin is None:
                raise ValueError(f"{name}:{node.lineno}: write `from {node.module} import` on one line")
            places.append((node.lineno, begin.end()))
        elif isinstance(node, ast.Import):
            for alias in filter(lambda alias: _is_ours(alias.name), node.names):
                if alias.asname is None:
                    raise ValueError(
                        f"{name}:{node.lineno}: write `from ... import`, not `import {alias.name}`"
                    )
                places.append((alias.lineno, alias.col_offset))
    for line, column in sorted(places, reverse=True):
        text = lines[line - 1]
        lines[line - 1] = b"%b%b.%b" % (text[:column], PACKAGE.encode(), text[column:])
    return b"".join(lines)


def _is_ours(module: str) -> bool:
    return module.split(".", 1)[0] in FOLDERS
