"""Claims: which consumer holds which message, what came back, and the buckets their records are."""
