"""Which texts of a call of a client are names: their types say so.

To a virtual host other than `/` such names are others in the core, and a client for one translates just them.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias


class Told(Enum):
    """The meaning of a text."""

    NAME = "name"
    ADDRESS = "address"
    VHOST = "vhost"


Name: TypeAlias = Annotated[str, Told.NAME]
"""A queue's or an exchange's."""

Address: TypeAlias = Annotated[str, Told.ADDRESS]
"""A topic: in `$queue/<name>...` it has a queue's name, in others none."""

VhostName: TypeAlias = Annotated[str, Told.VHOST]
"""The virtual host that is asked about; for who is in one it is that."""
