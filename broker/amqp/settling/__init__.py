"""Acknowledgements, both ways: what a channel was given and has not settled, and publisher confirms."""
