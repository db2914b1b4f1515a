"""Why a message is given up."""

from typing import Final

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"
UNMATCHED: Final = "unmatched"  # no group of the queue wanted it
RETENTION: Final = ""  # no group came for it in time: there are no dead letters
