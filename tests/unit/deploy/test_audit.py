"""`.ci/audit.py`: a weakness is told, and so is what nobody was asked about."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "audit.py"
LOCK_FILE = Path("requirements.lock")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sound(name):
    return {"name": name, "version": "1", "vulns": []}


def weak(name):
    return {"name": name, "version": "1", "vulns": [{"id": f"CVE-{name}", "fix_versions": ["2"]}]}


def skipped(name):
    return {"name": name, "skip_reason": f"Dependency not found on PyPI: {name} (1)"}


@pytest.mark.parametrize(
    ("pypi", "osv", "code", "last"),
    [
        ([sound("a"), sound("b")], None, 0, "requirements.lock: 2 packages looked at, 0 known weaknesses"),
        ([sound("a"), skipped("b")], [sound("a"), sound("b")], 0, "2 packages looked at, 0 known"),
        ([sound("a"), skipped("b")], "no route", 2, "0 known weaknesses; NOTHING WAS PROVED about b"),
        ([sound("a"), skipped("b")], [sound("a"), weak("b")], 1, "2 packages looked at, 1 known weaknesses"),
        ([skipped("a")], "no route", 2, "NOTHING WAS PROVED: no database answered about any package"),
        ("no route", "no route", 2, "NOTHING WAS PROVED: no database answered about any package"),
        ([weak("a"), skipped("b")], "no route", 1, "about b"),
    ],
)  # fmt: skip
def test_exit_code_says_whether_anything_was_proved(script, pypi, osv, code, last):
    asked = []

    def look(service, lock_file):
        asked.append(service)
        answer = {"pypi": pypi, "osv": osv}[service]
        assert answer is not None, "everything was known already"
        return answer if isinstance(answer, str) else {"dependencies": answer}

    found, told = script.audit(LOCK_FILE, look)
    assert found == code
    assert last in told[-1]
    assert ("osv could not be asked: no route" in "\n".join(told)) == (osv == "no route")
    assert ("CVE-" in "\n".join(told)) == (code == 1)
