"""`$queue/...` addresses, whose first level is a queue's name."""

from __future__ import annotations

import re
from typing import Final

_READ_AS_CODE: Final = re.compile("%(?=2[345BFbf])")
_TO_CODE: Final = str.maketrans({"/": "%2F", "#": "%23", "+": "%2B"})


def queue_address(queue: str) -> str:
    """Return the address of a queue: what one level of a topic cannot hold is written as `%` and its code."""
    level = _READ_AS_CODE.sub("%25", queue).translate(_TO_CODE)
    return f"$queue/%24{level[1:]}" if level.startswith("$") else f"$queue/{level}"
