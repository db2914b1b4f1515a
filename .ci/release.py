"""Cut a release out of the changelog, and hold a tag against it.

    python .ci/release.py cut VERSION DATE
    python .ci/release.py notes TAG

`cut` gives what is unreleased in CHANGELOG.md a version and a date (YYYY-MM-DD), and writes the version into
the files that name it. `notes` prints the section of a tag (`v0.2.0`), if those files agree. What does not
fit is told, with exit code 1, and nothing is written.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CHANGELOG: Final = "CHANGELOG.md"
OWNER: Final = "broker/version.py"
NAMING: Final = (
    OWNER,
    "spark_bridge/__init__.py",
    "spark_bridge/pyproject.toml",
    "deploy/helm/sluicemq/Chart.yaml",
    "deploy/kubernetes/sluicemq.yaml",
    "docs/spark.md",
)
"""Files that name the version; no other version in them has the same number."""

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_UNRELEASED: Final = "## [Unreleased]\n"


class Refused(Exception):
    """What was asked for does not fit; the text says why."""


def current_version(root: Path) -> str:
    """Return the version that `broker/version.py` has."""
    found = re.search(r'VERSION: Final = "([^"]+)"', (root / OWNER).read_text("utf-8"))
    if found is None:
        raise Refused(f"{OWNER} has no VERSION")
    return found[1]


def section(changelog: str, heading: str) -> str:
    """Return what stands below the heading `## [heading]`; empty if there is none."""
    found = re.search(
        rf"^## \[{re.escape(heading)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def cut(root: Path, version: str, date: str) -> None:
    """Date the unreleased section and raise the version. Raises Refused if that does not raise it."""
    if not _VERSION.fullmatch(version) or not _DATE.fullmatch(date):
        raise Refused("a version is MAJOR.MINOR.PATCH, a date YYYY-MM-DD")
    present = current_version(root)
    if _numbers(version) <= _numbers(present):
        raise Refused(f"{version} is not above {present}")
    changelog = (root / CHANGELOG).read_text("utf-8")
    if not section(changelog, "Unreleased"):
        raise Refused("nothing is unreleased")
    texts = {name: (root / name).read_text("utf-8") for name in NAMING}
    for name, text in texts.items():
        if not _naming(present).search(text):
            raise Refused(f"{name} does not name {present}")
    dated = changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {date}\n", 1)
    (root / CHANGELOG).write_text(dated, "utf-8")
    for name, text in texts.items():
        (root / name).write_text(_naming(present).sub(version, text), "utf-8")


def notes(root: Path, tag: str) -> str:
    """Return the changelog's section of a tag.

    Raises Refused if the version is another one, or has no dated section.
    """
    version = current_version(root)
    if tag != f"v{version}":
        raise Refused(f"the tag is {tag}, the version {version}")
    changelog = (root / CHANGELOG).read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - {_DATE.pattern}$", changelog, re.MULTILINE):
        raise Refused(f"{CHANGELOG} has no section '## [{version}] - YYYY-MM-DD'")
    for name in NAMING:
        if not _naming(version).search((root / name).read_text("utf-8")):
            raise Refused(f"{name} does not name {version}")
    return section(changelog, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _naming(version: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)")


def main(arguments: list[str]) -> int:
    """Do what the command line says; the exit code."""
    try:
        match arguments:
            case ["cut", version, date]:
                cut(ROOT, version, date)
            case ["notes", tag]:
                print(notes(ROOT, tag))
            case _:
                raise Refused((__doc__ or "").partition("\n\n")[2])
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
