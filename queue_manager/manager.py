"""The queue manager's public door: everything front-ends and the driver may call."""

from __future__ import annotations

from queue_manager.door.cleaning import Cleaning
from queue_manager.door.ending_groups import EndingGroups
from queue_manager.door.loading import Loading
from queue_manager.door.publishing import Publishing
from queue_manager.door.purging import Purging
from queue_manager.door.settling import Settling
from queue_manager.door.streaming import Streaming
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_SIZE, UNROUTED

__all__ = ["ACCEPTED", "REFUSED_DEPTH", "REFUSED_SIZE", "UNROUTED", "QueueManager"]


class QueueManager(Publishing, Settling, Streaming, Cleaning, Loading, Purging, EndingGroups):
    """All queues of one shard. One thread calls it; it calls consumers' sinks before it returns.

    Whatever drives it must take `seal()` whenever `needs_commit()`, write it, and call `committed`; perform
    `loads`; call `fire_timers` when `timers` says so; and call `expire` and `take_purges` from time to time.
    """
