"""What is next for a group is given up as long as it is too old."""

from queue_manager.cursor.cursor import NO_RULES, Cursor
from queue_manager.cursor.failures import DeadLetters
from queue_manager.log.retention import Retention
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.rules.expiry.front import Holder
from queue_manager.rules.expiry.fronts import Source
from queue_manager.rules.expiry.level import Level
from queue_manager.rules.expiry.queue_ttl import QueueTtl
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue


class Passed(Level):
    """The rules of a log, as far as a TTL knows them: notes what it is told."""

    def __init__(self, retention: Retention[Cursor], dead_letters: DeadLetters) -> None:
        super().__init__(retention, dead_letters)
        self.offsets: list[int] = []
        self.due_ms: list[int] = []

    def note_passed(self, holder: Holder, messages: list[Message]) -> None:
        self.offsets += [message.offset for message in messages]

    def pass_over(self, holder: Holder, source: Source, count: int) -> None:
        source.pass_by(count)

    def has_due(self, now_ms: int) -> bool:
        return False

    def call_at(self, due_ms: int) -> None:
        self.due_ms.append(due_ms)

    def read(self, now_ms: int) -> bool:
        return False


def begin(ttl_ms: int) -> tuple[QueueManager, Cursor, QueueTtl, Passed]:
    """The cursor of a group with two messages published a second apart, and a TTL for it."""
    manager = make_manager()
    queue = make_queue(manager, message_ttl_ms=ttl_ms)
    cursor = queue.group("").cursors[0]
    cursor.rules = NO_RULES
    plan = manager.plan("$queue/jobs", 0, b"", True)
    plan.aim(manager.publisher.route("$queue/jobs", NOW_MS))
    for at_ms in (NOW_MS, NOW_MS + 1_000):
        manager.publish(plan, [b"x"], at_ms)
    rules = Passed(cursor.retention, queue.dead_letters)
    return manager, cursor, QueueTtl(rules), rules


def test_messages_go_in_order_of_the_log_and_the_next_one_is_waited_for() -> None:
    _, cursor, ttl, rules = begin(500)
    ttl.end_due(NOW_MS + 499)
    assert (rules.offsets, cursor.position, rules.due_ms) == ([], 0, [NOW_MS + 500])
    ttl.end_due(NOW_MS + 500)
    assert (rules.offsets, cursor.position, rules.due_ms[1:]) == ([0], 1, [NOW_MS + 1_500])
    ttl.end_due(NOW_MS + 1_500)
    assert (rules.offsets, cursor.position) == ([0, 1], 2)
    assert not ttl.is_reading()
