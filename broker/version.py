"""The version of the broker; the distribution takes its version from here."""

from __future__ import annotations

from typing import Final

PRODUCT: Final = "SluiceMQ"
VERSION: Final = "0.2.0"
