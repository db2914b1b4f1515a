"""What the pipeline demo judges by, and what its devices send."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from examples.pipeline_demo.books import Books, Delivered, Published
from examples.pipeline_demo.compare import compare, read_rows
from examples.pipeline_demo.plant import BACK_S, DELAY_S, DEVICES, OFFLINE, STEP_S, Plant

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def alert(name, **more):
    return {"alert_id": name, "device": name, "severity": "warning", **more}


def delivery(name, *, redelivered=False, **more):
    fields = {"device": name, "severity": "warning", **more}
    return Delivered(0.0, name, json.dumps(fields).encode(), redelivered, False)


def test_equal_sets_are_good():
    verdict = compare([delivery("a"), delivery("b"), delivery("b", redelivered=True)], map(alert, "ba"))
    assert verdict.is_good
    assert verdict.count == 2


def test_every_difference_is_told():
    rows = [alert("a"), alert("b"), alert("c")]
    verdict = compare([delivery("a"), delivery("a"), delivery("b", peak=1), delivery("d")], rows)
    assert not verdict.is_good
    assert (verdict.doubled, verdict.missing, verdict.unexpected, verdict.different) == (
        ["a"], ["c"], ["d"], ["b"],
    )  # fmt: skip


def test_a_window_with_too_late_readings_may_be_there_or_not_but_once():
    rows = [alert("a"), {"alert_id": "late", "late": 2}]
    for deliveries in ([delivery("a")], [delivery("a"), delivery("late")]):
        verdict = compare(deliveries, rows)
        assert verdict.is_good
        assert verdict.undecided == ["late"]
    assert compare([delivery("a"), delivery("late"), delivery("late")], rows).doubled == ["late"]


def test_rows_as_spark_writes_them(tmp_path):
    (tmp_path / "part-00000-x.json").write_text('{"alert_id":"a"}\n{"alert_id":"b"}\n')
    (tmp_path / "_SUCCESS").touch()
    assert read_rows(tmp_path) == [{"alert_id": "a"}, {"alert_id": "b"}]


def test_books_count_what_was_told():
    books = Books()
    books.enter(Published(1.0, 0, 12, ["value", "value"]))
    books.enter(Published(2.0, 1, 13, []))
    books.enter(Delivered(3.0, "a", b"", False, True))
    assert (books.message_count, dict(books.problems), books.rejected) == (25, {"value": 2}, {"a"})


def test_devices_send_late_twice_and_broken_but_lose_nothing():
    plant, again = Plant(BEGIN, 3), Plant(BEGIN, 3)
    steps = 600
    sent = [plant.step(number) for number in range(steps)]
    assert sent == [again.step(number) for number in range(steps)]
    sent += [plant.rest(), plant.ticks(steps)]
    problems = Counter(message.problem for messages in sent for message in messages)
    assert set(problems) == {"", "malformed", "value", "ahead"}
    readings = [json.loads(message.body) for messages in sent for message in messages if not message.problem]
    known = Counter((reading["device"], reading["seq"]) for reading in readings if "value" in reading)
    assert set(known) == {(device, number) for device in DEVICES for number in range(steps)}
    assert set(known.values()) == {1, 2}
    newest = BEGIN
    for reading in readings:
        taken = datetime.fromisoformat(reading["ts"])
        if newest - taken >= timedelta(seconds=DELAY_S):  # too late: the device that was away
            second = reading["seq"] * STEP_S
            assert reading["device"] == OFFLINE[0]
            assert OFFLINE[1] <= second < OFFLINE[2] < BACK_S
        newest = max(newest, taken)
    assert sum("tick" in reading for reading in readings) == len(DEVICES)
