from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES, TEMPLATE_BYTES, Tail
from queue_manager.model import Message
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate

TEMPLATE = EnvelopeTemplate("t")


def messages(first: int, sizes: list[int]) -> list[Message]:
    return [Message(offset, offset, b"x" * size, TEMPLATE, 0) for offset, size in enumerate(sizes, first)]


class TailModel(RuleBasedStateMachine):
    """A tail beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = Tail(100)
        self.first = 100
        self.kept: list[Message] = []
        self.overhead_bytes = MESSAGE_OVERHEAD_BYTES

    @rule(sizes=st.lists(st.integers(0, 500), min_size=1, max_size=200), properties=st.integers(0, 300))
    def append_varied(self, sizes: list[int], properties: int) -> None:
        added = messages(self.first + len(self.kept), sizes)
        for message in added:
            message.template = EnvelopeTemplate("t", PROPERTIES_AMQP, bytes(properties))
        self.tail.append_varied(added, sum(sizes))
        self.kept += added
        cost_bytes = MESSAGE_OVERHEAD_BYTES + TEMPLATE_BYTES + 2 * properties
        self.overhead_bytes = max(self.overhead_bytes, cost_bytes)

    @rule(sizes=st.lists(st.integers(0, 500), max_size=2_000))
    def append(self, sizes: list[int]) -> None:
        added = messages(self.first + len(self.kept), sizes)
        self.tail.append(added, sum(sizes))
        self.kept += added

    def drop(self, count: int) -> None:
        count = max(0, min(count, len(self.kept)))
        del self.kept[:count]
        self.first += count
        if not self.kept and count:
            self.overhead_bytes = MESSAGE_OVERHEAD_BYTES

    @rule(ahead=st.integers(-5, 3_000))
    def drop_before(self, ahead: int) -> None:
        self.tail.drop_before(self.first + ahead)
        self.drop(ahead)

    @rule(bytes_max=st.integers(0, 100_000), durable=st.integers(-5, 3_000))
    def drop_bytes(self, bytes_max: int, durable: int) -> None:
        self.tail.drop_bytes(bytes_max, self.first + durable)
        excess = self.size() - bytes_max
        count = 0
        for message in self.kept[: max(0, durable)]:
            if excess <= 0:
                break
            excess -= len(message.body or b"") + self.overhead_bytes
            count += 1
        self.drop(count)

    def size(self) -> int:
        return sum(len(message.body or b"") + self.overhead_bytes for message in self.kept)

    @invariant()
    def is_the_same(self) -> None:
        tail = self.tail
        assert len(tail) == len(self.kept)
        assert tail.first_offset == self.first
        assert tail.next_offset == self.first + len(self.kept)
        assert tail.memory_bytes == self.size()
        assert tail.slice(self.first, 10) == self.kept[:10]
        assert tail.slice(self.first + 7, 3) == self.kept[7:10]
        assert tail.holds(self.first) == bool(self.kept)
        assert not tail.holds(self.first - 1)
        assert not tail.holds(tail.next_offset)


TestTail = TailModel.TestCase


@given(st.integers(1, 50))
def test_dropped_messages_are_let_go_of_before_long(step: int) -> None:
    tail = Tail(0)
    tail.append(messages(0, [1] * 5_000), 5_000)
    for offset in range(0, 4_900, step):
        tail.drop_before(offset)
    assert len(tail._messages) <= 2 * max(1_024, len(tail)) + step


def test_what_was_let_go_of_is_there_again_with_the_memory_it_takes():
    tail = Tail(0)
    appended = messages(0, [10] * 3)
    tail.append(appended, 30)
    before = tail.memory_bytes
    tail.release(1)
    assert tail.released() == [1]
    tail.restore(appended[1])
    tail.restore(appended[1])
    assert (tail.released(), tail.memory_bytes) == ([], before)
    assert tail.slice(0, 3) == appended
