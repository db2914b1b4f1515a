"""The distribution `sluicemq-spark` holds what the folder holds, and needs nothing of the broker."""

import ast
import tomllib
from pathlib import Path

import spark_bridge

FOLDER = Path(spark_bridge.__file__).parent
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text())
ALLOWED = {"spark_bridge", "pyspark", "pyarrow"}


def test_every_module_is_packed():
    listed = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert set(listed) == {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py")}
    for source, target in listed.items():
        assert target == (source if source == "pyspark_sluice.py" else f"spark_bridge/{source}")


def test_only_spark_is_needed():
    import sys

    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            for name in names:
                root = name.split(".")[0]
                assert root in ALLOWED or root in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_the_versions_agree():
    assert PROJECT["project"]["version"] == spark_bridge.__version__
