"""A queue's keeper, in parts; `queue_manager.keeper` puts them together."""
