"""What came in, what came out and how long it took, as a picture."""

import json
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib

from examples.pipeline_demo.books import Books, Delivered
from examples.pipeline_demo.plant import DELAY_S, DEVICES, STEP_S

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

GREY, BLUE, ORANGE, RED = "#8a8a8a", "#3b6ea5", "#e09f3e", "#b23a48"
COLOURS = {"warning": ORANGE, "critical": RED}
RATE_BIN_S = 2


@dataclass
class Moments:
    """Event time begins at `begin`; the driver was killed, and its successor was at work (s, wall clock)."""

    begin: datetime
    killed: float = 0.0
    back: float = 0.0


def draw(books: Books, moments: Moments, undecided: set[str], file: Path) -> None:
    """Draw it into `file` (PNG)."""
    zero = books.published[0].at
    figure, (rate, alerts, latency) = plt.subplots(
        3, 1, figsize=(11, 9), sharex=True, height_ratios=(2, 4, 2), constrained_layout=True
    )
    figure.suptitle("Telemetry pipeline: readings in, alerts out, the Spark driver killed once", fontsize=13)
    _draw_rate(rate, books, zero)
    _draw_alerts(alerts, books, moments, undecided, zero)
    _draw_latency(latency, books, moments, zero)
    for axes in (rate, alerts, latency):
        axes.axvspan(moments.killed - zero, moments.back - zero, color=GREY, alpha=0.18, lw=0)
        axes.axvline(moments.killed - zero, color="black", lw=1.2, ls="--")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
    rate.annotate(
        "kill -9", (moments.killed - zero, 1.02), xycoords=("data", "axes fraction"), ha="right", fontsize=9
    )
    rate.annotate(
        " next driver at work",
        (moments.back - zero, 1.02),
        xycoords=("data", "axes fraction"),
        ha="left",
        fontsize=9,
    )
    latency.set_xlabel("seconds since the first reading")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    plt.close(figure)


def _draw_rate(axes: Any, books: Books, zero: float) -> None:
    counts: dict[int, int] = {}
    for published in books.published:
        slot = int((published.at - zero) / RATE_BIN_S)
        counts[slot] = counts.get(slot, 0) + published.count
    slots = sorted(counts)
    axes.bar(
        [slot * RATE_BIN_S for slot in slots],
        [counts[slot] / RATE_BIN_S for slot in slots],
        RATE_BIN_S * 0.9,
        align="edge",
        color=BLUE,
    )
    axes.set_ylabel("messages/s in\n(MQTT, QoS 1)")


def _draw_alerts(axes: Any, books: Books, moments: Moments, undecided: set[str], zero: float) -> None:
    """Each window that was an alert, where its event time was on the wall clock."""
    clock = _EventClock(books, moments.begin)
    seen = set()
    for delivery in books.delivered:
        if delivery.alert_id in seen:
            continue
        seen.add(delivery.alert_id)
        alert = json.loads(delivery.body)
        row = DEVICES.index(alert["device"])
        start, end = (clock.at(datetime.fromisoformat(alert[name])) - zero for name in ("from", "until"))
        axes.barh(row, (end - start) * 0.92, 0.7, start, color=COLOURS[alert["severity"]])
        if delivery.rejected:
            axes.plot((start + end) / 2, row, marker="x", color="black", ms=5)
        if delivery.alert_id in undecided:
            axes.plot((start + end) / 2, row, marker="o", color="white", ms=4)
    axes.set_yticks(range(len(DEVICES)), DEVICES, fontsize=8)
    axes.set_ylim(len(DEVICES) - 0.4, -0.6)
    axes.set_ylabel("alerts by device and window")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour, label=name) for name, colour in COLOURS.items()]
    handles.append(plt.Line2D([], [], color="black", marker="x", ls="", label="rejected by the worker"))
    axes.legend(handles=handles, loc="upper right", fontsize=8, ncols=3)


def _draw_latency(axes: Any, books: Books, moments: Moments, zero: float) -> None:
    """From the moment the watermark could pass a window to the worker."""
    clock = _EventClock(books, moments.begin)
    points = [(delivery.at - zero, clock.latency(delivery)) for delivery in books.delivered]
    axes.scatter(*zip(*points, strict=True), s=14, color=BLUE, alpha=0.8, lw=0)
    axes.set_yscale("log")
    axes.set_ylabel("s from closing\nto the worker")
    axes.grid(axis="y", alpha=0.25)


class _EventClock:
    """When a moment of event time was on the wall clock: when its readings were confirmed."""

    def __init__(self, books: Books, begin: datetime) -> None:
        self._begin = begin
        self._steps = [published.step for published in books.published]
        self._walls = [published.at for published in books.published]

    def at(self, moment: datetime) -> float:
        step = (moment - self._begin).total_seconds() / STEP_S
        return self._walls[min(bisect_left(self._steps, step), len(self._walls) - 1)]

    def latency(self, delivery: Delivered) -> float:
        until = datetime.fromisoformat(json.loads(delivery.body)["until"]).timestamp() + DELAY_S
        return max(0.01, delivery.at - self.at(datetime.fromtimestamp(until, self._begin.tzinfo)))
