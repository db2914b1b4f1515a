"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from broker.logs.printable import printable

EXIT_REFUSED: Final = 1

_WIDE: Final = 10_000  # nothing is cut where no terminal is


def refuse(reason: object, code: int = EXIT_REFUSED) -> NoReturn:
    """End the command, with what was in its way."""
    typer.echo(f"sluicemq: {reason}", err=True)
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """Print as JSON, indented."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


Columns = Iterable[str | tuple[str, str]]
"""Fields of rows, each under its name, or with a title of its own."""


def print_found(
    found: Iterable[Mapping[str, Any]],
    columns: Columns,
    *,
    as_json: bool,
    row: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> None:
    """Print what the broker told: as JSON, or these columns of the `row` that each makes."""
    if as_json:
        print_json(found)
        return
    titled = [(each, each.upper().replace("_", " ")) if isinstance(each, str) else each for each in columns]
    print_table(titled, map(row, found))


def print_table(columns: Sequence[tuple[str, str]], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one line for each row; columns are (key, title), numbers go to the right."""
    listed = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, title in columns:
        is_number = any(isinstance(row.get(key), int | float) for row in listed)
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    for row in listed:
        table.add_row(*[text_of(row.get(key)) for key, _ in columns])
    console = Console(markup=False, emoji=False)  # a name in brackets is a name
    if not console.is_terminal:
        console = Console(width=_WIDE, markup=False, emoji=False)
    console.print(table)


def text_of(value: Any) -> str:
    """Return a value as a cell, fit for a terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    return printable(str(value))


def print_fields(value: Mapping[str, Any], prefix: str = "") -> None:
    """Print one line for each field; those of objects inside have their names before them."""
    for name, each in value.items():
        if isinstance(each, Mapping):
            print_fields(each, f"{prefix}{name}.")
        else:
            typer.echo(f"{prefix}{name:<{max(1, 28 - len(prefix))}} {text_of(each)}")
