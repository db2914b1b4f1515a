"""A cursor: one consumer group's place in one log, its claims, and how its state is written."""
