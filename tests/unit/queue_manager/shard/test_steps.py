from queue_manager.shard.steps import Steps


class Count:
    """Work of so many steps."""

    def __init__(self, name: str, left: int, log: list[str]) -> None:
        self.name = name
        self.left = left
        self.log = log

    def step(self, now_ms: int) -> bool:
        self.left -= 1
        self.log.append(self.name)
        return self.left > 0


def test_works_take_turns_until_they_are_done():
    steps = Steps()
    log: list[object] = []
    for name, left in (("a", 3), ("b", 1), ("c", 2)):
        steps.add(Count(name, left, log))
    while steps:
        steps.take(0)
    assert log == ["a", "b", "c", "a", "c", "a"]
    steps.take(0)
    assert len(log) == 6
