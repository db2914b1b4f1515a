"""MQTT sessions that outlive their connection: what they are subscribed to, and what waits for them.

A session has no queue of its own. What a topic filter matches is stored once, in the log of that filter
(`filter_log`), and every session subscribed to it reads that log. Message IDs rise over all logs, so one
position is a session's place in all of its logs, and the same message in two of them is one delivery.
"""
