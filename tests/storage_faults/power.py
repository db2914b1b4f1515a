"""A disk that keeps only what was synced: what a power cut leaves, at worst or by chance.

In the process whose power will fail, `install` has every fsync also note what is on disk from then on:
contents of files, entries of directories. SlateDB never syncs by itself, so Python's calls are all there are.
Afterwards `restore` makes the directory that the next start finds.
"""

import json
import os
import random
import time
from pathlib import Path

from storage.place import DATABASE
from storage.torn_files import BOOT_FILE
from tests.waiting import hold_up

SECTOR_BYTES = 512

INSTALL = """
from pathlib import Path
from config import limits
from tests.storage_faults import power
limits.JOURNAL_SEGMENT_BYTES = 64 * limits.KIB
limits.JOURNAL_REPLAY_AT_ONCE_BYTES = 0
limits.STORE_TABLE_BYTES = 128 * limits.KIB
limits.STORE_SWEEP_INTERVAL_S = 0.1
limits.STORE_GARBAGE_INTERVAL_S = 0.2
limits.STORE_GARBAGE_AGE_MIN_S = 1
limits.STORE_COMPACTED_AGE_MIN_S = 4
power.install(Path({root!r}), Path({notes!r}), {slow_s})
"""


def installing(root: Path, notes: Path, *, slow_s: float = 0.0) -> str:
    """What a child begins with to have such a disk, with everything small and often.

    `slow_s`: how long the sync of a table or manifest takes.
    """
    return INSTALL.format(root=str(root), notes=str(notes), slow_s=slow_s)


def install(root: Path, notes: Path, slow_s: float) -> None:
    """Note in `notes` what of `root` is on disk."""
    notes.mkdir(exist_ok=True)
    whole_sync, whole_data_sync = os.fsync, os.fdatasync

    def sync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if slow_s and path.parent.name in ("compacted", "manifest", "compactions"):
            hold_up(slow_s)
        data = None if path.is_dir() else path.read_bytes()  # what comes during the sync may miss it
        whole_sync(fd)
        note(notes, path, data)

    def data_sync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        data = path.read_bytes()
        whole_data_sync(fd)
        note(notes, path, data)

    def sync_all(fd: int) -> None:
        for folder, _, files in os.walk(root):
            for name in files:
                path = Path(folder, name)
                try:
                    note(notes, path, path.read_bytes())
                except FileNotFoundError:
                    continue
            note(notes, Path(folder), None)

    from storage import local_sync

    os.fsync, os.fdatasync = sync, data_sync  # type: ignore[assignment]
    local_sync._sync_filesystem = sync_all
    sync_all(-1)


def note(notes: Path, path: Path, data: bytes | None) -> None:
    """Remember the file's contents, or with None the directory's entries."""
    if data is None:
        entries = {entry.name: _identity(Path(entry.path)) for entry in os.scandir(path)}
        data = json.dumps(entries).encode()
    target = notes / _identity(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.{time.monotonic_ns()}")
    partial.write_bytes(data)
    partial.rename(target)


def restore(root: Path, notes: Path, target: Path, source: random.Random | None = None) -> None:
    """Make `target` what is left of `root`: what was synced, and with `source` also some of what was not."""
    _restore(root, notes, target, source)
    (target / DATABASE / BOOT_FILE).unlink(missing_ok=True)  # the machine was started anew


def _restore(root: Path, notes: Path, target: Path, source: random.Random | None) -> None:
    target.mkdir()
    synced = _synced_entries(root, notes)
    present = {entry.name: _identity(Path(entry.path)) for entry in os.scandir(root)}
    names = dict(synced)
    if source is not None:
        for name in set(present) | set(synced):
            if name not in synced and source.random() < 0.5:
                names[name] = present[name]
            elif name in synced and name not in present and source.random() < 0.5:
                del names[name]
    for name, identity in names.items():
        path = root / name
        if (notes / identity).exists() and _is_listing(notes / identity):
            _restore(path, notes, target / name, source) if path.is_dir() else (target / name).mkdir()
        elif path.is_dir() and present.get(name) == identity:
            _restore(path, notes, target / name, source)
        else:
            (target / name).write_bytes(
                _contents(path, notes / identity, present.get(name) == identity, source)
            )


def _contents(path: Path, noted: Path, is_there: bool, source: random.Random | None) -> bytes:
    before = noted.read_bytes() if noted.exists() else b""
    if source is None or not is_there:
        return before
    after = path.read_bytes()
    before = before.ljust(len(after), b"\0")
    chance = source.choice([0.0, 0.5, 1.0])
    return b"".join(
        (after if source.random() < chance else before)[at : at + SECTOR_BYTES]
        for at in range(0, max(len(before), len(after)), SECTOR_BYTES)
    )


def _synced_entries(folder: Path, notes: Path) -> dict[str, str]:
    listing = notes / _identity(folder)
    if not listing.exists():
        return {}
    entries: dict[str, str] = json.loads(listing.read_bytes())
    return entries


def _is_listing(noted: Path) -> bool:
    return noted.name.endswith("-dir")


def _identity(path: Path) -> str:
    """The same file under whatever name; numbers of inodes are used again, names with them are not."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return "gone"
    if path.is_dir():
        return f"{found.st_ino}-dir"
    return f"{found.st_ino}-{path.name}"
