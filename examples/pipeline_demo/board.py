"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.pipeline_demo.compare import Verdict

PLAIN_INTERVAL_S = 5
EVENTS_SHOWN_MAX = 10


class Board:
    """Shows counts while it is entered; `say` adds a line about what happens."""

    def __init__(self) -> None:
        self.console = Console()
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._events: list[str] = []
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()
            for line in self._events:
                self._print(line)

    def say(self, text: str) -> None:
        """Tell what happens."""
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self.console.is_terminal:
            self._events.append(line)
        else:
            self._print(line)

    def show(self, counts: Mapping[str, str]) -> None:
        """Bring the counts up to date; call it often."""
        if self.console.is_terminal:
            table = Table(*counts)
            table.add_row(*counts.values())
            events = Text("\n".join(self._events[-EVENTS_SHOWN_MAX:]))
            self._live.update(Group(table, events), refresh=True)
        elif time.monotonic() - self._shown > PLAIN_INTERVAL_S:
            self._shown = time.monotonic()
            self.say(", ".join(f"{name} {text}" for name, text in counts.items()))

    def result(self, verdicts: Mapping[str, Verdict]) -> None:
        """The comparison, for each of the recomputations."""
        title = "Alerts in the queue, beside those recomputed from"
        table = Table(title=title, title_justify="left")
        table.add_column("")
        for heading in ("alerts", "doubled", "missing", "unexpected", "different", "undecided"):
            table.add_column(heading, justify="right")
        for name, verdict in verdicts.items():
            wrong = (verdict.doubled, verdict.missing, verdict.unexpected, verdict.different)
            table.add_row(
                name,
                str(verdict.count),
                *(Text(str(len(ids)), "bold red" if ids else "bold green") for ids in wrong),
                str(len(verdict.undecided)),
            )
        self.console.print(table)

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
