"""The queue manager's public door, in parts; `queue_manager.manager` puts them together."""
