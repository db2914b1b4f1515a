"""broker.logs.printable: what others chose does nothing to a terminal."""

import io
from contextlib import redirect_stdout

import pytest

from broker.commands.printing import print_table
from broker.logs.printable import make_printable, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("device-7 \u6f22 \u00fc", "device-7 \u6f22 \u00fc"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\nforged line", "a\\nforged line"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
    ],
)
def test_characters_that_are_not_seen_are_escaped(text, shown):
    assert printable(text) == shown


def test_a_line_of_the_log_is_one_line_and_a_traceback_keeps_its_own():
    line = {"event": "mqtt.refused", "client_id": "a\nb\x1b[2J", "count": 3, "exception": "one\ntwo\x1b"}
    made = make_printable(None, "info", line)
    assert made == {
        "event": "mqtt.refused",
        "client_id": "a\\nb\\x1b[2J",
        "count": 3,
        "exception": "one\ntwo\\x1b",
    }


def test_tables_of_commands_show_names_as_they_are():
    out = io.StringIO()
    with redirect_stdout(out):
        print_table([("name", "NAME")], [{"name": "[bold]q[/x] :smile: \x1b[2J"}])
    assert "[bold]q[/x] :smile: \\x1b[2J" in out.getvalue()
