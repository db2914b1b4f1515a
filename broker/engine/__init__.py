"""What drives the core and the store: commits, loads, recovery, removals."""
