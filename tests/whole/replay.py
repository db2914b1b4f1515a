"""Run a sequence that was written down: `python -m tests.whole.replay FILE [TIMES [WORKERS]]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.whole.run import Host
from tests.whole.world import Operation


def read(path: Path) -> list[Operation]:
    """The operations of a file."""
    told = json.loads(path.read_text("utf-8"))
    return [(name, client, arguments) for name, client, arguments in told["operations"]]


def main() -> int:
    operations = read(Path(sys.argv[1]))
    host = Host(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    found = 0
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        mismatch = host.run(operations)
        found += mismatch is not None
        print(mismatch or "as the oracle says")
    host.end()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
