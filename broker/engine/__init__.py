"""The drivers of the core and the store: commits, loads, recovery, removals."""
