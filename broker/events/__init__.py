"""What the broker tells of itself as it happens: clients that come and go, and whatever else is noted at the
engine's `EventClient`, published to `amq.rabbitmq.event`.
"""
