"""What devices and workers tell the demo."""

from collections import Counter
from typing import NamedTuple


class Published(NamedTuple):
    """The broker had confirmed all messages of this step at `at` (s, wall clock); `problems` are in them."""

    at: float
    step: int
    count: int  # type: ignore[assignment]
    problems: list[str]


class Finished(NamedTuple):
    """No device publishes any more."""


class Delivered(NamedTuple):
    """A worker got this alert at `at` (s, wall clock) and acknowledged or rejected it."""

    at: float
    alert_id: str
    body: bytes
    redelivered: bool
    rejected: bool


class Books:
    """Everything that was told, and when."""

    def __init__(self) -> None:
        self.published: list[Published] = []
        self.delivered: list[Delivered] = []
        self.problems: Counter[str] = Counter()
        self.message_count = 0
        self.is_finished = False

    def enter(self, report: object) -> None:
        """Take in one report."""
        match report:
            case Published():
                self.published.append(report)
                self.message_count += report.count
                self.problems.update(report.problems)
            case Delivered():
                self.delivered.append(report)
            case Finished():
                self.is_finished = True

    @property
    def rejected(self) -> set[str]:
        """The alerts that workers rejected."""
        return {delivery.alert_id for delivery in self.delivered if delivery.rejected}
