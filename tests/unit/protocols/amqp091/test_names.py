"""Names of exchanges and queues."""

import pytest
from pamqp import commands

from protocols.amqp091.names import is_reserved_name, strip_line_ends


@pytest.mark.parametrize(
    ("method", "stripped"),
    [
        (commands.Queue.Declare, ("queue",)),
        (commands.Queue.Delete, ("queue",)),
        (commands.Queue.Bind, ("queue", "exchange")),
        (commands.Queue.Unbind, ("queue", "exchange")),
        (commands.Exchange.Declare, ("exchange",)),
        (commands.Exchange.Delete, ("exchange",)),
        (commands.Exchange.Bind, ("destination", "source")),
        (commands.Exchange.Unbind, ("destination", "source")),
        (commands.Basic.Consume, ()),
        (commands.Basic.Get, ()),
        (commands.Queue.Purge, ()),
    ],
)
def test_line_ends_are_taken_out_of_the_names_that_are_declared_or_bound(method, stripped):
    decoded = method()
    names = [name for name in decoded.attributes() if isinstance(getattr(decoded, name), str)]
    for name in names:
        setattr(decoded, name, "a\r\nb\n\tc")
    strip_line_ends(decoded)
    for name in names:
        assert getattr(decoded, name) == ("ab\tc" if name in stripped else "a\r\nb\n\tc")


def test_amq_names_are_reserved():
    assert is_reserved_name("amq.topic")
    assert not is_reserved_name("amqp")
