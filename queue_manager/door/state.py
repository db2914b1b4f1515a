"""What every part of the queue manager works on."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager import dead_letters, redrive
from queue_manager.dead_letters import DeadLetterBook, Stamp
from queue_manager.errors import (
    QueueNotFound,
    ResourceLocked,
)
from queue_manager.group import Group
from queue_manager.journal import Journal
from queue_manager.loads import Load
from queue_manager.memory import EphemeralMemory
from queue_manager.message_fields import MessageFields
from queue_manager.policy import QueuePolicy
from queue_manager.queue import Queue
from queue_manager.redrive import OriginOf
from queue_manager.removal import Removal
from queue_manager.retention import Purge
from queue_manager.routing import Bindings
from queue_manager.staging.attempt import Attempt
from queue_manager.sticky.keys import GroupKeyOf, no_key
from queue_manager.timers import Timers
from storage.metadata_log import MetadataLog
from storage.sequence import SequenceAllocator


class ManagerState:
    """All queues of one shard, and what is to be done for them."""

    def __init__(
        self,
        *,
        default_policy: QueuePolicy,
        auto_create: bool,
        cache_bytes_max: int,
        log: MetadataLog,
        message_ids: SequenceAllocator,
    ) -> None:
        self.default_policy = default_policy
        self.auto_create = auto_create
        self.cache_bytes_max = cache_bytes_max
        self.log = log
        self.message_ids = message_ids
        self.queues: dict[str, Queue] = {}
        self.bindings = Bindings()
        self.journal = Journal()
        self.sealed_bytes = 0
        self.next_log_number = 1
        self.loads: list[Load] = []
        self.busy_keepers = 0  # queues that are giving up messages just now, one within the other
        self.removals: list[Removal] = []
        self.removing: dict[str, list[Callable[[], None]]] = {}
        self.dispatchable: dict[Group, None] = {}
        self.dirty_groups: dict[Group, None] = {}
        self.appended: dict[Queue, None] = {}
        self.trimmable: dict[Queue, None] = {}
        self.skipped: dict[Group, list[tuple[int, int, bool]]] = {}
        self.unread_purges: list[Purge] = []
        self.timers = Timers()
        self.fields = MessageFields()
        self.staged_open: list[Attempt] = []  # attempts with rows in the open commit
        self.ephemeral_memory = EphemeralMemory()
        self.dead_letters = DeadLetterBook()
        self.stamp_death: Stamp = dead_letters.keep_properties
        self.origin_of: OriginOf = redrive.no_origin
        self.group_key_of: GroupKeyOf = no_key
        self.consuming: dict[Group, None] = {}  # groups with consumers, which leases may end in
        self.purgeable: dict[Group, None] = {}  # groups with done records
        self.tailed: dict[Queue, None] = {}  # queues with messages in memory
        self.replayed: dict[Queue, None] = {}  # streams with messages in memory that were read back
        self.unborn: list[Group] = []  # made before it was known what their queues let go of
        self.stale_settle_count = 0
        self.repeated_publish_count = 0  # taken before, by their identity
        self.auto_commit_interval_ms = 5_000

    def named(self, name: str) -> Queue | None:
        """The queue that clients know by this name."""
        queue = self.queues.get(name)
        return None if queue is None or queue.is_lane else queue

    def find(self, name: str, owner: object = None) -> Queue:
        """The queue; raises QueueNotFound, or ResourceLocked when it is exclusive to somebody else."""
        queue = self.named(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name!r}")
        self.check_owner(queue, owner)
        return queue

    def check_owner(self, queue: Queue, owner: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to somebody other than `owner`."""
        if queue.owner is not None and queue.owner is not owner:
            raise ResourceLocked(f"queue {queue.name!r} is exclusive to another connection")

    def adopt(self, queue: Queue) -> None:
        """Take in a queue that was made or recovered."""
        self.queues[queue.name] = queue
        self.bindings.add(queue)

    def uncommitted_bytes(self) -> int:
        """Memory of what waits for durability; publishers are held back when it grows too much."""
        return self.journal.held_bytes + self.sealed_bytes

    def flush_with_next_commit(self, group: Group) -> None:
        """Have the group's state written with the open commit, whenever it was last written."""
        if group.dirty:
            group.flushed_at_ms = 0
