"""Who is told that a queue or an exchange is deleted."""

from __future__ import annotations

from queue_manager.routing.watched_names import WatchedNames


def test_each_watcher_of_a_name_is_told_once_and_no_other() -> None:
    watched = WatchedNames()
    told: list[str] = []
    calls = {name: lambda name=name: told.append(name) for name in ("first", "left", "second", "other")}
    for name in ("first", "left", "second"):
        watched.watch("q", calls[name])
    watched.watch("r", calls["other"])
    watched.unwatch("q", calls["left"])
    watched.deleted("q")
    watched.deleted("q")
    assert told == ["first", "second"]
    watched.unwatch("q", calls["first"])
    watched.unwatch("r", calls["other"])
    assert len(watched) == 0
