"""`sluicemq store merge`: the records of one shard among those of another, with other numbers.

`renumbering` has the records of queues, `session_joining` those of MQTT sessions, `shard_merge` brings them
over.
"""
