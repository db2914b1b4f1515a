"""What the demo shows: a live table on a terminal, plain lines elsewhere, and the table at the end."""

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.report import Books

PLAIN_INTERVAL_S = 2
EVENTS_SHOWN_MAX = 8


class Board:
    """Shows `books` while it is entered; `say` adds a line about what happens."""

    def __init__(self, books: Books, workers: dict[str, int]) -> None:
        self._books = books
        self._workers = workers
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._events: list[str] = []
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> "Board":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
            for line in self._events:
                self._print(line)

    def say(self, text: str) -> None:
        """Tell what happens."""
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self._console.is_terminal:
            self._events.append(line)
            self.show()
        else:
            self._print(line)

    def show(self) -> None:
        """Bring the counts up to date; call it often."""
        if self._console.is_terminal:
            events = Text("\n".join(self._events[-EVENTS_SHOWN_MAX:]))
            self._live.update(Group(self._counts(), events), refresh=True)
        elif time.monotonic() - self._shown > PLAIN_INTERVAL_S:
            self._shown = time.monotonic()
            books = self._books
            done = ", ".join(f"{group} {len(orders):,}" for group, orders in books.done.items())
            self.say(f"sent {books.sent:,}, confirmed {len(books.confirmed):,}, done: {done}")

    def result(self) -> None:
        """The table at the end."""
        books = self._books
        table = Table(title="Every confirmed order, accounted for", title_justify="left")
        table.add_column("")
        for heading in ("sent", "confirmed", "done", "redelivered", "lost"):
            table.add_column(heading, justify="right")
        table.add_row("devices", f"{books.sent:,}", f"{len(books.confirmed):,}")
        for group in books.done:
            lost = books.missing(group)
            table.add_row(
                self._label(group),
                "",
                "",
                f"{len(books.done[group]):,}",
                f"{books.redelivered[group]:,}",
                Text(f"{lost:,}", "bold red" if lost else "bold green"),
            )
        self._console.print(table)

    def _counts(self) -> Table:
        books = self._books
        table = Table()
        table.add_column("devices (MQTT)")
        table.add_column("sent", justify="right")
        table.add_column("confirmed", justify="right")
        for group in books.done:
            table.add_column(f"{self._label(group)} done", justify="right")
        done = [f"{len(orders):,}" for orders in books.done.values()]
        table.add_row("$queue/orders/+", f"{books.sent:,}", f"{len(books.confirmed):,}", *done)
        return table

    def _label(self, group: str) -> str:
        count = self._workers[group]
        return f"group {group}, {count} worker{'s' if count > 1 else ''}"

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
