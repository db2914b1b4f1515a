"""What the broker calls itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

PRODUCT: Final = "SluiceMQ"

try:
    VERSION = version("sluicemq")
except PackageNotFoundError:  # run from a source tree
    VERSION = "0.1.0"
