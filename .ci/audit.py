"""Ask public databases for known weaknesses of what the lock files name, and say what could not be found out.

    build/audit/bin/python .ci/audit.py

`pip-audit` asks PyPI's database, then OSV's about what PyPI did not know; it says that nothing was found also
where nobody answered. Exit codes: 0 every package was looked at and has no known weakness; 1 some has; 2 none
is known, but not every package could be looked at, so this proves nothing about those.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

SOUND, WEAK, UNKNOWN = 0, 1, 2
LOCK_FILES: Final = (Path("requirements.lock"), Path("requirements-spark.lock"))
SERVICES: Final = ("pypi", "osv")
SERVICE_TIMEOUT_S: Final = 300

Look = Callable[[str, Path], dict[str, Any] | str]
"""Asks a service about a lock file: what it answers, or, as text, why there is no answer."""


def ask(service: str, lock_file: Path) -> dict[str, Any] | str:
    """See `Look`."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--vulnerability-service", service]
    command += ["--requirement", str(lock_file), "--require-hashes", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SERVICE_TIMEOUT_S, check=False)
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"no answer within {SERVICE_TIMEOUT_S} s"
    except ValueError:
        return done.stderr.strip().rpartition("\n")[2] or f"pip-audit ended with {done.returncode}"
    assert isinstance(answer, dict)
    return answer


def audit(lock_file: Path, look: Look = ask) -> tuple[int, list[str]]:
    """Return the exit code, and what to print."""
    told: list[str] = []
    looked_at: set[str] = set()
    named: set[str] = set()
    weak: dict[str, str] = {}
    for service in SERVICES:
        answer = look(service, lock_file)
        if isinstance(answer, str):
            told.append(f"{lock_file.name}: {service} could not be asked: {answer}")
            continue
        for package in answer["dependencies"]:
            named.add(package["name"])
            if "skip_reason" in package:
                continue
            looked_at.add(package["name"])
            for found in package["vulns"]:
                fixed = ", ".join(found.get("fix_versions", ())) or "no version"
                weak[found["id"]] = f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}"
        if named and named == looked_at:
            break
    told += sorted(weak.values())
    told.append(_verdict(lock_file, looked_at, named, len(weak)))
    if weak:
        return WEAK, told
    return (SOUND if named and named == looked_at else UNKNOWN), told


def _verdict(lock_file: Path, looked_at: set[str], named: set[str], weak_count: int) -> str:
    if not looked_at:
        return f"{lock_file.name}: NOTHING WAS PROVED: no database answered about any package"
    said = f"{lock_file.name}: {len(looked_at)} packages looked at, {weak_count} known weaknesses"
    missing = sorted(named - looked_at)
    return f"{said}; NOTHING WAS PROVED about {', '.join(missing)}" if missing else said


def main(lock_files: Iterable[Path] = LOCK_FILES) -> int:
    """Audit them all; the worst exit code, a weakness before what is unknown."""
    codes = set()
    for lock_file in lock_files:
        code, told = audit(lock_file)
        print("\n".join(told), flush=True)
        codes.add(code)
    return next((code for code in (WEAK, UNKNOWN) if code in codes), SOUND)


if __name__ == "__main__":
    sys.exit(main())
