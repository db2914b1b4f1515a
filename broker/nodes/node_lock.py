"""The lock of a node: proof, for its next start on the same machine, that all its processes have ended.

The supervisor opens a file before it forks, and the keeper locks it: so all processes of the node have that
lock (`flock`) in common, and the kernel lets go of it when the last of them has ended. In the file stands the
member that the node is. Who gets the lock afterwards knows that this member can neither deliver nor confirm
any more, whatever its lease says.

Nothing follows from a lock that cannot be had, nor from a file of another user, of another start of the
machine, or of the same supervisor, whose earlier workers may still end.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BYTES_MAX: Final = 4_096


class NodeLock:
    """The lock of one node; made by its supervisor, used by its keeper. `path`: its file, of this user."""

    def __init__(self, path: Path) -> None:
        self._own = secrets.token_hex(8)
        self._boot = _boot_id()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            about = os.fstat(self._file)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                os.close(self._file)
                self._file = -1
        except OSError:
            self._file = -1

    @classmethod
    def of(cls, url: str, node: str) -> NodeLock:
        """Return that of a node, by its storage and its name."""
        known = hashlib.sha256(f"{url}\n{node}".encode()).hexdigest()[:24]
        return cls(Path(tempfile.gettempdir()) / f"sluicemq-node-{known}.lock")

    def take(self) -> bool:
        """Have the lock, for all processes of this node; whether it could be had."""
        if self._file < 0 or not self._boot:
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def dead_member(self) -> str:
        """Return the member whose processes had the lock before it was taken; "": none that is known."""
        try:
            found = json.loads(os.pread(self._file, _BYTES_MAX, 0))
            if found["boot"] == self._boot and found["supervisor"] != self._own:
                return str(found["member"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return ""

    def write(self, member: str) -> None:
        """Say which member this node is, before it joins. It has been taken."""
        told = json.dumps({"boot": self._boot, "supervisor": self._own, "member": member}).encode()
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, told, 0)
        except OSError:
            pass  # nothing follows from what can be read, then


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
