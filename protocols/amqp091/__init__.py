"""AMQP 0.9.1, server side.

`connection.AmqpConnection` is the whole protocol as a state machine; `events` is what it tells the front-end,
`hot` encodes deliveries and confirms, `content` reads and changes content properties, `methods` holds the
replies whose pamqp classes refuse `$queue/...` names.
"""
