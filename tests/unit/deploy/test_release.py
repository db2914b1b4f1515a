"""`.ci/release.py` and the workflows: a release has the changelog's text, one version, and pinned actions."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from broker.version import VERSION

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", PROJECT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(script: ModuleType, tmp_path: Path) -> Path:
    """Version 0.1.0, with something unreleased."""
    for name in script.NAMING:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('VERSION: Final = "0.1.0"  # not 10.1.0 nor 0.1.01\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Tea.\n\n## [0.1.0]\n\n- Water.\n"
    )
    return tmp_path


def test_release_takes_what_is_unreleased_and_raises_the_version(script: ModuleType, checkout: Path) -> None:
    script.cut(checkout, "0.2.0", "2026-11-23")
    assert (checkout / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n"
        "### Added\n\n- Tea.\n\n## [0.1.0]\n\n- Water.\n"
    )
    for name in script.NAMING:
        assert (checkout / name).read_text() == 'VERSION: Final = "0.2.0"  # not 10.1.0 nor 0.1.01\n'
    assert script.notes(checkout, "v0.2.0") == "### Added\n\n- Tea."


@pytest.mark.parametrize(
    ("version", "date"),
    [("0.1.0", "2026-11-23"), ("0.0.9", "2026-11-23"), ("0.2", "2026-11-23"), ("0.2.0", "today")],
)
def test_release_that_does_not_fit_is_refused(
    script: ModuleType, checkout: Path, version: str, date: str
) -> None:
    with pytest.raises(script.Refused):
        script.cut(checkout, version, date)
    assert script.current_version(checkout) == "0.1.0"


def test_release_of_nothing_is_refused(script: ModuleType, checkout: Path) -> None:
    script.cut(checkout, "0.2.0", "2026-11-23")
    with pytest.raises(script.Refused, match="nothing is unreleased"):
        script.cut(checkout, "0.3.0", "2026-11-24")


def test_tag_of_another_version_or_without_a_section_is_refused(script: ModuleType, checkout: Path) -> None:
    with pytest.raises(script.Refused, match="the tag is v0.2.0"):
        script.notes(checkout, "v0.2.0")
    with pytest.raises(script.Refused, match="no section"):
        script.notes(checkout, "v0.1.0")
    script.cut(checkout, "0.2.0", "2026-11-23")
    (checkout / script.NAMING[-1]).write_text("0.1.0")
    with pytest.raises(script.Refused, match="does not name"):
        script.notes(checkout, "v0.2.0")


def test_this_version_can_be_released(script: ModuleType) -> None:
    assert script.notes(PROJECT, f"v{VERSION}")


@pytest.mark.parametrize(
    "file", sorted((PROJECT / ".github" / "workflows").glob("*.yml")), ids=lambda file: file.name
)
def test_actions_are_pinned_to_commits(file: Path) -> None:
    used = re.findall(r"uses: *(\S+.*)$", file.read_text(), re.MULTILINE)
    assert used
    assert [
        action
        for action in used
        if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
    ] == []
