"""Wire protocols, sans-IO: bytes and time go in, events and bytes come out.

Nothing here opens a socket, reads a clock or awaits. `protocols.mqtt` speaks MQTT 3.1.1 and 5,
`protocols.amqp091` AMQP 0.9.1, `protocols.amqp10` AMQP 1.0; none knows another, all implement
`sans_io_connection.Connection`.
"""
