"""What strace sees: with `storage.sync: always` no commit is confirmed before its fsync."""

import asyncio
import re
import shutil
import subprocess

import pytest

from tests.storage_faults.children import Writer

COMMITS = 20
CONFIRM = re.compile(r'write\(1<[^>]*>, "\d+')


def traceable() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return probe.returncode == 0


pytestmark = pytest.mark.skipif(not traceable(), reason="strace is absent or not permitted")


async def trace(tmp_path, sync: str) -> list[str]:
    output = tmp_path / "trace"
    writer = Writer(str(tmp_path / "data"), sync=sync, commits=COMMITS)
    calls = "trace=fsync,fdatasync,syncfs,sync,write"
    await asyncio.to_thread(writer.start, "strace", "-f", "-y", "-o", str(output), "-e", calls)
    await asyncio.to_thread(writer.wait)
    return output.read_text().splitlines()


def completed_syncs_and_confirms(lines: list[str]) -> list[str]:
    """In order: the path of each fsync when it has returned, and `confirmed` for each line told."""
    begun: dict[str, str] = {}
    events = []
    for line in lines:
        thread = line.split()[0]
        if match := re.search(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", line):
            if "unfinished" in line:
                begun[thread] = match[1]
            else:
                events.append(match[1])
        elif "fsync resumed" in line or "fdatasync resumed" in line:
            events.append(begun.pop(thread))
        elif CONFIRM.search(line):
            events.append("confirmed")
    return events


async def test_always(tmp_path):
    confirmed = 0
    synced: list[str] = []
    for event in completed_syncs_and_confirms(await trace(tmp_path, "always")):
        if event == "confirmed":
            assert any("/journal/segment-" in path for path in synced), f"{confirmed} came before its sync"
            synced.clear()
            confirmed += 1
        else:
            synced.append(event)
    assert confirmed == COMMITS


async def test_os(tmp_path):
    lines = await trace(tmp_path, "os")
    assert len([line for line in lines if CONFIRM.search(line)]) == COMMITS
    assert [line for line in lines if "sync(" in line or "syncfs(" in line] == []
