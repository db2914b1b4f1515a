"""What becomes of a publish."""

from typing import Final

ACCEPTED: Final = 0  # in every queue it was routed to; durable once the journal at the time of the call is
UNROUTED: Final = 1  # no queue wanted it
REFUSED_DEPTH: Final = 2  # a queue is full
REFUSED_SIZE: Final = 3  # larger than a queue takes
