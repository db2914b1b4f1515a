"""What strace sees: with `storage.sync: always` no commit is confirmed before its fsync."""

import asyncio
import re
import shutil
import subprocess

import pytest

from tests.storage_faults.children import Writer

COMMITS = 20
CONFIRM = re.compile(r'write\(1<[^>]*>, "(\d+)\\n"')


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
    await asyncio.to_thread(writer.run_to, COMMITS - 1)
    await asyncio.to_thread(writer.kill)
    return output.read_text().splitlines()


async def test_always(tmp_path):
    lines = await trace(tmp_path, "always")
    confirmed = 0
    objects: set[str] = set()
    directory = False
    for line in lines:
        if match := re.search(r"fsync\(\d+<[^>]*/wal/(\d+\.sst)>", line):
            objects.add(match[1])
        elif re.search(r"fsync\(\d+<[^>]*/wal/?>", line):
            directory = True
        elif CONFIRM.search(line):
            assert len(objects) == 1, f"commit {confirmed} was confirmed with {objects} synced"
            assert directory
            objects, directory = set(), False
            confirmed += 1
        elif '"open\\n"' in line:
            objects, directory = set(), False
    assert confirmed == COMMITS


async def test_os(tmp_path):
    lines = await trace(tmp_path, "os")
    assert len([line for line in lines if CONFIRM.search(line)]) == COMMITS
    assert [line for line in lines if "sync(" in line or "syncfs(" in line] == []
