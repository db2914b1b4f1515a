"""The client of a shard in this process."""
