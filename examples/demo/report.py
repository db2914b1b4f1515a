"""What devices and workers tell the demo, and what it makes of that."""

from typing import NamedTuple


class Sent(NamedTuple):
    """So many orders has this device published so far, each counted once."""

    device: str
    count: int  # type: ignore[assignment]


class Confirmed(NamedTuple):
    """The broker confirmed these orders."""

    orders: list[str]


class Done(NamedTuple):
    """A worker of this group has done these orders and acknowledged them; True: marked as redelivered."""

    group: str
    orders: list[tuple[str, bool]]


class Books:
    """Every order accounted for."""

    def __init__(self, groups: tuple[str, ...]) -> None:
        self._sent: dict[str, int] = {}
        self.confirmed: set[str] = set()
        self.done: dict[str, set[str]] = {group: set() for group in groups}
        self.redelivered: dict[str, int] = dict.fromkeys(groups, 0)
        """Deliveries that were marked so, or that brought an order the group had done already."""

    @property
    def sent(self) -> int:
        return sum(self._sent.values())

    def enter(self, report: object) -> None:
        """Take in one report."""
        match report:
            case Sent(device, count):
                self._sent[device] = count
            case Confirmed(orders):
                self.confirmed.update(orders)
            case Done(group, orders):
                done = self.done[group]
                for order, marked in orders:
                    self.redelivered[group] += marked or order in done
                    done.add(order)

    def missing(self, group: str) -> int:
        """Confirmed orders that the group has not done (yet)."""
        return len(self.confirmed - self.done[group])
