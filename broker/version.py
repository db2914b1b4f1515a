"""The version of the broker; the distribution takes its version from here."""

from __future__ import annotations

from typing import Final

PRODUCT: Final = "SluiceMQ"
VERSION: Final = "0.2.0"

RABBITMQ_VERSION: Final = "4.3.0"
"""The release of RabbitMQ whose behaviour is followed; clients look at it to know what they may ask for."""
