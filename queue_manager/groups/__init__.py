"""A consumer group, in parts; `queue_manager.group` puts them together."""
