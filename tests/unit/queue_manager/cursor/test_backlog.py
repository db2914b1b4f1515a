"""What a cursor is given of its log, in order: what the group wants and is still there."""

from queue_manager.cursor.backlog import Backlog
from queue_manager.cursor.cursor import Cursor
from tests.unit.queue_manager.managers import make_manager, make_queue, publish


def begin(count: int = 10) -> tuple[Cursor, Backlog[Cursor]]:
    """The cursor of the only group of a queue with so many messages, and its backlog."""
    manager = make_manager()
    queue = make_queue(manager)
    cursor = queue.group("").cursors[0]
    publish(manager, count)
    return cursor, cursor.backlog


def take(backlog: Backlog[Cursor], count: int) -> list[int]:
    return [message.offset for message in backlog.take(count)]


def test_messages_are_taken_in_order_and_peeked_at_without_moving() -> None:
    _, backlog = begin()
    assert [message.offset for message in backlog.reader.peek(2)] == [0, 1]
    assert (take(backlog, 3), backlog.position, backlog.at_hand()) == ([0, 1, 2], 3, 7)


def test_unwanted_messages_are_passed_and_let_go_of() -> None:
    cursor, backlog = begin()
    backlog.wants = lambda message: message.offset % 3 == 0
    assert take(backlog, 2) == [0, 3]
    assert [offset for offset, _, _ in cursor.skipped._rows] == [1, 2]
    assert cursor.stored.is_dirty


def test_what_the_log_let_go_of_is_not_handed_out() -> None:
    cursor, backlog = begin()
    cursor.retention.payloads.released.add(1, 4)
    backlog.pass_released()
    assert (take(backlog, 2), take(backlog, 2), take(backlog, 9)) == ([0], [4, 5], [6, 7, 8, 9])
    assert cursor.progress.gaps is None


def test_what_expired_ahead_is_passed_when_messages_are_claimed_out_of_order() -> None:
    cursor, backlog = begin()
    cursor.progress.begin_bitmap()
    for offset in (0, 1, 5):
        cursor.retention.use_expired().add(offset)
    backlog.pass_expired()
    assert (backlog.position, cursor.progress.has_taken(5)) == (2, True)


def test_pass_to_goes_forward_only_and_not_past_what_is_claimed_out_of_order() -> None:
    cursor, backlog = begin()
    backlog.pass_to(4)
    backlog.pass_to(2)
    assert backlog.position == 4
    cursor.progress.begin_bitmap()
    backlog.pass_to(6)
    assert backlog.position == 4
    backlog.skip_to(7)
    assert backlog.position == 7
