"""Plain subscriptions: the tree of filters, shared subscriptions."""
