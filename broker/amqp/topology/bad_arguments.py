"""Arguments that cannot be had, told in the words that clients know from RabbitMQ."""

from __future__ import annotations

from typing import Any

from broker.properties.amqp import field_type_name
from queue_manager.errors import InvalidArgument


class BadArgument(InvalidArgument):
    """An argument of queue.declare or basic.consume that cannot be had. `told` says so of a queue."""

    def __init__(self, name: str, why: str) -> None:
        """`why` follows the name of the queue."""
        super().__init__(f"{name}{why}")
        self.name = name
        self._why = why

    def told(self, queue: str, vhost: str) -> str:
        """Return the reply text."""
        return f"invalid arg '{self.name}' for queue '{queue}' in vhost '{vhost}'{self._why}"


class BadType(BadArgument):
    """As `BadArgument`, for an argument that names an exchange and is no text."""

    def told(self, queue: str, vhost: str) -> str:
        return f"invalid type '{self._why}' for arg '{self.name}' in queue '{queue}' in vhost '{vhost}'"


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return the value of an argument if it is an integer from `low` (0 or more) to `high`; raises
    BadArgument.
    """
    number = checked_integer(name, value)
    if number < 0:
        raise BadArgument(name, f": {{value_negative,{number}}}")
    if number < low:
        raise BadArgument(name, f": {{value_zero,{value}}}")
    if number > high:
        raise BadArgument(name, f": {{value_too_large,{value}}}")
    return number


def checked_integer(name: str, value: Any) -> int:
    """Return the value of an argument if it is an integer; raises BadArgument."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadArgument(name, f': "expected integer, got {field_type_name(value)}"')
    return value


def unacceptable(name: str, value: object) -> BadArgument:
    return BadArgument(name, f": {{unacceptable_type,{field_type_name(value)}}}")
