"""basic.publish, transactions, and replies without a queue."""
