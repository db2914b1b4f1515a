"""What came in, what came out and how long it took, as a picture."""

import json
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.dates import DateFormatter, MinuteLocator, date2num
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from examples.pipeline_demo.books import Books
from examples.pipeline_demo.plant import DELAY_S, DEVICES, STEP_S

GREY, BLUE, ORANGE, RED = "#8a8a8a", "#3b6ea5", "#e0a03e", "#b23a48"
COLOURS = {"warning": ORANGE, "critical": RED}
BIN_S = 2


@dataclass
class Moments:
    """Event time begins at `begin`; the driver was killed, and its successor was at work (s, wall clock)."""

    begin: datetime
    killed: float = 0.0
    back: float = 0.0


def draw(books: Books, moments: Moments, undecided: set[str], file: Path) -> None:
    """Draw it into `file` (PNG). Every part has the same axis: seconds since the first reading."""
    clock = _EventClock(books, moments.begin)
    figure, parts = pyplot.subplots(
        4, 1, figsize=(11, 9.5), sharex=True, height_ratios=(1.5, 4, 1.5, 2), constrained_layout=True
    )
    figure.suptitle(
        "Readings in, alerts out; the Spark driver is killed once", fontsize=13, fontweight="bold"
    )
    _draw_rate(parts[0], [(one.at - clock.zero, one.count) for one in books.published], BLUE)
    parts[0].set_ylabel("messages/s\nby MQTT")
    _draw_windows(parts[1], books, clock, undecided)
    _draw_rate(parts[2], [(one.at - clock.zero, 1) for one in books.delivered], RED)
    parts[2].set_ylabel("alerts/s\nto workers")
    _draw_latency(parts[3], books, clock)
    killed, back = moments.killed - clock.zero, moments.back - clock.zero
    for axes in parts:
        axes.axvspan(killed, back, color=GREY, alpha=0.16, lw=0, zorder=0)
        axes.axvline(killed, color="black", lw=1.2, ls="--")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
    top = parts[0].get_xaxis_transform()
    parts[0].text(killed, 1.03, "kill -9", transform=top, ha="center", fontsize=9)
    parts[0].text(back, 1.03, "next driver at work", transform=top, ha="center", fontsize=9)
    parts[0].text(
        (killed + back) / 2, 1.03, "no pipeline", transform=top, ha="center", fontsize=9, color=GREY
    )
    parts[3].set_xlabel("seconds since the first reading")
    parts[3].set_xlim(left=-1)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=90)
    pyplot.close(figure)


def _draw_rate(axes: Any, events: list[tuple[float, int]], colour: str) -> None:
    """Counts at moments, as a rate."""
    counts: dict[int, int] = {}
    for at, count in events:
        counts[int(at / BIN_S)] = counts.get(int(at / BIN_S), 0) + count
    starts = [slot * BIN_S for slot in counts]
    axes.bar(starts, [n / BIN_S for n in counts.values()], BIN_S * 0.9, align="edge", color=colour)


def _draw_windows(axes: Any, books: Books, clock: "_EventClock", undecided: set[str]) -> None:
    """Each window that was an alert, where its event time was on the wall clock."""
    for delivery in {one.alert_id: one for one in reversed(books.delivered)}.values():
        alert = json.loads(delivery.body)
        row = DEVICES.index(alert["device"])
        start, end = (clock.at(datetime.fromisoformat(alert[name])) for name in ("from", "until"))
        axes.barh(row, (end - start) * 0.92, 0.72, start, color=COLOURS[alert["severity"]], zorder=2)
        if delivery.rejected:
            axes.plot((start + end) / 2, row, marker="x", color="black", ms=5, zorder=3)
        if delivery.alert_id in undecided:
            axes.plot((start + end) / 2, row, marker="o", color="white", ms=4, zorder=3)
    axes.set_yticks(range(len(DEVICES)), DEVICES, fontsize=8)
    axes.set_ylim(len(DEVICES) - 0.4, -0.6)
    axes.set_ylabel("alerts: a bar is a window")
    axes.text(
        0,
        -0.13,
        "small clock: the devices' own time (event time), by which a bar begins and ends as its window did",
        transform=axes.transAxes,
        fontsize=8,
        color=GREY,
    )
    handles: list[Any] = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    handles.append(
        Line2D([], [], color="black", marker="x", ls="", label="rejected by a worker: dead letter")
    )
    if undecided & {one.alert_id for one in books.delivered}:
        handles.append(
            Line2D(
                [], [], color="white", markeredgecolor=GREY, marker="o", ls="", label="with too late readings"
            )
        )
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1.0), fontsize=8, ncols=4, frameon=False
    )
    event_time = axes.secondary_xaxis(-0.02, functions=(clock.numbers_of, clock.seconds_of))
    event_time.xaxis.set_major_locator(MinuteLocator(range(0, 60, 5)))
    event_time.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    event_time.tick_params(labelsize=8, length=2)
    event_time.spines["bottom"].set_visible(False)


def _draw_latency(axes: Any, books: Books, clock: "_EventClock") -> None:
    """From the moment the watermark could pass a window to the worker."""
    for delivery in books.delivered:
        alert = json.loads(delivery.body)
        latency_s = max(0.01, delivery.at - clock.zero - clock.closed(alert["until"]))
        axes.plot(delivery.at - clock.zero, latency_s, "o", ms=4, color=COLOURS[alert["severity"]], alpha=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10, 30, 100, 300]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("seconds from watermark\nto worker")
    axes.grid(axis="y", alpha=0.25)


class _EventClock:
    """Event time on the wall clock: when the readings of that moment were confirmed, in s since `zero`."""

    def __init__(self, books: Books, begin: datetime) -> None:
        self.zero = books.published[0].at
        self._begin = begin
        self._steps = [published.step for published in books.published]
        self._walls = [published.at - self.zero for published in books.published]

    def at(self, moment: datetime) -> float:
        step = (moment - self._begin).total_seconds() / STEP_S
        if step > self._steps[-1]:  # a window that the devices' end cut short
            return float(self._walls[-1] + (step - self._steps[-1]) * self._walls[-1] / self._steps[-1])
        return self._walls[bisect_left(self._steps, step)]

    def closed(self, until: str) -> float:
        """When the first reading was there that let the watermark pass a window's end."""
        there = self.at(datetime.fromisoformat(until) + timedelta(seconds=DELAY_S))
        return min(there, self._walls[-1])  # or the tick that came in its place

    def numbers_of(self, seconds: Any) -> Any:
        """Event time at seconds of the wall clock, as matplotlib counts it."""
        pace = self._steps[-1] * STEP_S / self._walls[-1]
        return date2num(self._begin) + seconds * pace / 86_400

    def seconds_of(self, numbers: Any) -> Any:
        """The opposite."""
        pace = self._steps[-1] * STEP_S / self._walls[-1]
        return (numbers - date2num(self._begin)) * 86_400 / pace
