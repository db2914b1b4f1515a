"""Messages that expire, and the oldest where there are too many."""
