"""The Markdown pages: links lead somewhere, and configurations they show are valid."""

import re
from pathlib import Path

import pytest

from config.settings_loader import load_settings

PROJECT = Path(__file__).parents[3]
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").rglob("*.md"))]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_FENCED = re.compile(r"```.*?```", re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in _LINK.finditer(_FENCED.sub("", page.read_text("utf-8"))):
        path, _, anchor = link["target"].partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link["target"])

    assert broken == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if _YAML.search(page.read_text("utf-8"))],
    ids=lambda page: str(page.relative_to(PROJECT)),
)
def test_configurations_shown_are_valid(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(_YAML.findall(page.read_text("utf-8"))):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, "utf-8")

        load_settings(file)
