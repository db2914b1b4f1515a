"""The wheel holds one package with every module of the tree, and no import by a folder's own name."""

import ast
import configparser
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_build import FOLDERS, IN_THE_CHECKOUT_ONLY, PACKAGE
from tests.e2e.broker_process import PROJECT
from tests.wheel.conftest import build

# calls whose first argument may name a module or a logger
NAMING_CALLS = {"import_module", "__import__", "find_spec", "files", "get_logger"}

COMPILED = {
    f"{PACKAGE}/{name}.abi3.so"
    for name in ("storage/native/_fill", "broker/mqtt/native/_lone", "broker/mqtt/native/_each")
}
HAS_COMPILER = shutil.which("cc") and Path(sysconfig.get_path("include"), "Python.h").exists()


def files_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def packed(wheel):
    return files_of(wheel)


@pytest.fixture(scope="module")
def tree():
    """What git knows of the folders, by the name it is to have in the wheel; new files too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", PACKAGE, *FOLDERS]
    try:
        listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=20, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("git does not list the tree's files here")
    names = [name for name in listed.stdout.splitlines() if (PROJECT / name).exists()]
    return {
        name if name.startswith(f"{PACKAGE}/") else f"{PACKAGE}/{name}": (PROJECT / name).read_bytes()
        for name in names
        if not name.startswith(IN_THE_CHECKOUT_ONLY)
    }


def of_package(files):
    return {name: content for name, content in files.items() if ".dist-info/" not in name}


def roots_named(tree: ast.AST) -> Iterator[str]:
    """The first part of each name of a module that is imported, run or looked up."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names = (
                [ast.literal_eval(node.args[0])] if called in NAMING_CALLS and is_text(node.args[0]) else []
            )
        elif isinstance(node, ast.List | ast.Tuple):
            following = zip(node.elts, node.elts[1:], strict=False)
            names = [b.value for a, b in following if is_text(a) and a.value == "-m" and is_text(b)]  # type: ignore[attr-defined]
        yield from (name.split(".")[0] for name in names)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_one_name_is_taken_from_everybody_else(packed):
    assert {name.split("/")[0] for name in of_package(packed)} == {PACKAGE}


def test_every_file_of_the_tree_is_there_and_no_other(packed, tree):
    assert set(of_package(packed)) - COMPILED == set(tree)
    assert {"sluicemq/py.typed", "sluicemq/config/default.yaml"} < set(packed)


def test_a_packed_file_differs_from_the_trees_by_its_imports_only(packed, tree):
    for name, content in of_package(packed).items():
        if name in COMPILED:
            continue
        lines, packed_lines = tree[name].splitlines(), content.splitlines()
        assert len(lines) == len(packed_lines), name
        for line, packed_line in zip(lines, packed_lines, strict=True):
            if line != packed_line:
                assert packed_line.lstrip().startswith((b"from sluicemq.", b"import sluicemq.")), name
                assert packed_line.replace(b"sluicemq.", b"") == line, name


def test_no_module_names_a_folder_without_the_package(packed):
    left = [
        f"{name}: {root}"
        for name, content in packed.items()
        if name.endswith(".py")
        for root in roots_named(ast.parse(content))
        if root in FOLDERS
    ]
    assert left == []


@pytest.mark.parametrize(
    "source",
    [
        "import broker.app as app", "from config import limits", "importlib.import_module('storage.open')",
        "[python, '-m', 'broker']", "files('config')", "structlog.get_logger('broker.mqtt')",
    ],
)  # fmt: skip
def test_a_folder_named_in_any_way_would_be_found(source):
    assert set(roots_named(ast.parse(source))) & set(FOLDERS)


def test_the_command_is_the_packages(packed):
    [text] = [content for name, content in packed.items() if name.endswith("/entry_points.txt")]
    points = configparser.ConfigParser()
    points.read_string(text.decode())
    assert dict(points["console_scripts"]) == {"sluicemq": "sluicemq.__main__:main"}


@pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler, or no headers of Python")
def test_with_a_compiler_the_loop_in_c_is_there_and_the_wheel_is_for_this_platform(wheel, packed):
    assert set(packed) >= COMPILED
    assert re.search(r"-cp311-abi3-linux_\w+\.whl$", wheel.name)


@pytest.mark.parametrize("environment", [{"SLUICEMQ_BUILD": "pure"}, {"CC": "no-such-compiler"}])
def test_without_a_compiler_the_wheel_is_for_every_platform(environment, monkeypatch, tmp_path):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wheel = build("wheel", PROJECT, tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert COMPILED.isdisjoint(files_of(wheel))


@pytest.mark.long
def test_the_source_distribution_builds_the_same_wheel(packed, tmp_path):
    with tarfile.open(build("sdist", PROJECT, tmp_path)) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    assert files_of(build("wheel", source, tmp_path)) == packed
