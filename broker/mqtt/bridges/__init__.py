"""Bridges to other MQTT brokers.

What goes out waits in a session of the bridge's own, as for any client that is away: bounded, on the store,
and sent again until it is acknowledged. What comes in is published here in the name of that session, so
that it does not go back.
"""
