"""Load generation and side-by-side comparison of brokers on one machine."""
