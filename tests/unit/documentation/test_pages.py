"""The Markdown pages: links lead somewhere, and configurations they show are valid."""

import re
from pathlib import Path

import pytest

from config.settings_loader import load_settings

PROJECT = Path(__file__).parents[3]
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").rglob("*.md"))]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_PYTHON_FILE = re.compile(r"[\w*./]+\.py\b")
_FOLDER = re.compile(r"(?<![\w./`])`?((?:[\w*]+/)+)(?=[`\s,:;])")
_CLASS = re.compile(r"`([A-Z][a-z]+[A-Za-z]*)(?:[.(`])")
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


def test_architecture_names_files_and_classes_that_exist() -> None:
    page = (PROJECT / "docs/architecture.md").read_text("utf-8")
    files = [
        file.relative_to(PROJECT).as_posix()
        for file in (*PROJECT.glob("*.py"), *PROJECT.glob("[a-z]*/**/*.py"))
    ]
    folders = {f"{parent.as_posix()}/" for file in files for parent in Path(file).parents}
    classes = {
        name
        for file in files
        for name in re.findall(r"^class (\w+)", (PROJECT / file).read_text("utf-8"), re.MULTILINE)
    }
    missing = [name for name in _PYTHON_FILE.findall(page) if not any(_is_end(name, file) for file in files)]
    missing += [
        name for name in _FOLDER.findall(page) if not any(_is_end(name, folder) for folder in folders)
    ]
    missing += [name for name in _CLASS.findall(page) if name not in classes]

    assert missing == []


def _is_end(name: str, path: str) -> bool:
    """Return whether a path ends with a name; `*` in it stands for one folder or part of one."""
    pattern = re.escape(name).replace(r"\*", "[^/]*")
    return re.search(rf"(^|/){pattern}$", path) is not None
