"""Queues, exchanges and bindings: what is declared, with which arguments."""
