"""Queues, consumer groups, claims and leases: synchronous, deterministic, told the time.

Nothing here awaits, reads a clock or draws a random number, so one sequence of calls always gives
the same deliveries and the same records. `queue_manager.manager.QueueManager` is the public door.
"""
