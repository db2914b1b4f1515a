"""Bringing a shard up from its store: scan the records, let `queue_manager.recovery` make sense of them.

What serving needs is read first (`start.recover`): specs, cursors, open buckets, each log's last entry. What
only retention needs, the done and failed records, is read afterwards in the background
(`done.recover_done`).
"""
