"""Queues, exchanges and bindings: nodes that links make, and the link pair of `/management`."""
