"""Records, sequences and the metadata log of the queue-storage layout, and the stores that hold them."""
