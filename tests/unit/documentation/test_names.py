"""Module names lead to one file each, but where rooms mirror each other or have a file for each subject."""

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
FLOORS = ("broker", "protocols", "queue_manager", "storage", "config")

MIRRORED = (
    ("broker/amqp", "broker/amqp10", "broker/mqtt"),
    ("protocols/amqp091", "protocols/mqtt", "protocols/amqp10"),
)
"""A file of one may have its counterpart in the other, at the same place below it."""

SUBJECTS = (
    "broker/admin",
    "broker/amqp/topology",
    "broker/commands",
    "broker/http/mqcore",
    "broker/http/rabbitmq",
    "broker/http/v1",
    "broker/engine/client",
    "broker/engine/recovery",
    "queue_manager/recovery",
)
"""Rooms with a file for each subject: `queues`, `groups`, `vhosts` ... as an operator knows them."""

RECORDS = "storage/records"
"""A record is called as what it records."""

OF_EACH_PACKAGE = {"__init__", "__main__", "errors"}


def subject_of(path: str) -> str:
    """What a module is named for: files with the same one may have the same name."""
    folder = path.rpartition("/")[0]
    if folder in SUBJECTS:
        return "subjects"
    for pair in MIRRORED:
        for side in pair:
            if path.startswith(f"{side}/"):
                return f"{pair[0]}: {path.removeprefix(side)}"
    return path


def test_no_two_modules_have_one_name() -> None:
    named = defaultdict(list)
    for floor in FLOORS:
        for file in sorted((ROOT / floor).rglob("*.py")):
            if file.stem not in OF_EACH_PACKAGE and RECORDS not in file.as_posix():
                named[file.stem].append(file.relative_to(ROOT).as_posix())
    doubles = {name: paths for name, paths in named.items() if len({subject_of(path) for path in paths}) > 1}
    assert doubles == {}
