"""At most one line about refused publishes per queue and second."""

from structlog.testing import capture_logs

from broker.logs.log_pace import RefusalLog
from config import limits


def test_one_line_a_second_and_queue() -> None:
    log = RefusalLog()
    with capture_logs() as lines:
        for now_ms in (1_000, 1_001, 1_999, 2_000, 2_500):
            log.note("a", now_ms, 2, queue="a", reason="full")
        log.note("b", 2_500, 1, queue="b", reason="full")
    assert [(line["queue"], line["count"], line.get("not_logged")) for line in lines] == [
        ("a", 2, None),
        ("a", 2, 4),
        ("b", 1, None),
    ]


def test_the_table_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(limits, "REFUSAL_LOG_QUEUES_MAX", 2)
    log = RefusalLog()
    with capture_logs() as lines:
        for name in "abcd":
            log.note(name, 1_000, 1)
    assert len(lines) == 4
    assert len(log._seen) <= 2
