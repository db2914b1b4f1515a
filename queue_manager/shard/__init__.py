"""The state that all queues of one shard share: the open commit, timers, reads asked for, work lists."""
