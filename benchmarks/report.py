"""Medians, ratios and tables of a comparison."""

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.scenarios import SCENARIOS, SLUICEMQ, Metric, Scenario

Result = dict[str, Any]


def summarize(results: list[Result]) -> list[Result]:
    """One entry per scenario and metric: medians, ratio (above 1: SluiceMQ is better) and verdict."""
    rows: list[Result] = []
    for scenario in SCENARIOS:
        own = [result for result in results if result["scenario"] == scenario.name]
        if own:
            rows.extend(_row(scenario, metric, own) for metric in scenario.metrics)
    return rows


def _row(scenario: Scenario, metric: Metric, results: list[Result]) -> Result:
    ours = _median(results, SLUICEMQ, metric.key)
    peers = _median(results, scenario.peer, metric.key)
    ratio = None
    if ours and peers:
        ratio = round(ours / peers if metric.more_is_better else peers / ours, 2)
    return {
        "scenario": scenario.name,
        "metric": metric.key,
        "unit": metric.unit,
        "peer": scenario.peer,
        "sluicemq_median": ours,
        "peer_median": peers,
        "ratio": ratio,
        "target": metric.target(),
        "met": None if ours is None else metric.met(ours, ratio),
        "failed_runs": sum("error" in result for result in results),
    }


def _median(results: list[Result], broker: str, key: str) -> float | None:
    values = [result[key] for result in results if result["broker"] == broker and key in result]
    return statistics.median(values) if values else None


def print_summary(console: Console, rows: list[Result]) -> None:
    """Print medians, ratios and verdicts."""
    left, right = ("scenario", "metric", "peer"), ("ratio", "SluiceMQ", "peer's", "target", "met")
    table = _table("Medians; ratio above 1: SluiceMQ is better", left, right)
    previous = ""
    for row in rows:
        first = row["scenario"] != previous
        previous = row["scenario"]
        if first and len(table.rows):
            table.add_section()
        table.add_row(
            row["scenario"] if first else "",
            f"{row['metric']} ({row['unit']})",
            row["peer"] if first else "",
            f"{row['ratio']:.2f}x" if row["ratio"] is not None else "-",
            _number(row["sluicemq_median"]),
            _number(row["peer_median"]),
            row["target"],
            {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row["met"]],
        )
    console.print(table)


def print_runs(console: Console, results: list[Result]) -> None:
    """Print all single runs."""
    right = ("run", "figures", "lost", "broker CPU", "msg per CPU s", "clients' CPU", "others' CPU")
    table = _table("All runs (CPU in percent of one core)", ("scenario", "broker"), right)
    metrics = {scenario.name: scenario.metrics for scenario in SCENARIOS}
    for result in results:
        figures = " / ".join(_number(result.get(metric.key)) for metric in metrics[result["scenario"]])
        if "error" in result:
            figures = f"[red]failed: {result['error']}[/]"
        table.add_row(
            result["scenario"],
            result["broker"],
            str(result["run"]),
            figures,
            str(result.get("lost", "")),
            str(result.get("broker_cpu_percent", "")),
            _number(result.get("messages_per_cpu_s")),
            _client_cpu(result.get("client_cpu_percent", {})),
            _number(result.get("other_cpu_percent")),
        )
    console.print(table)


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title)
    for heading in (*left, *right):
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def _client_cpu(clients: dict[str, float]) -> str:
    """Sum, and the busiest one: when that nears 100 the generator was the limit."""
    if not clients:
        return ""
    return f"{sum(clients.values()):.0f} (max {max(clients.values()):.0f})"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.3g}"
