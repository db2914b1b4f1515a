"""Acknowledgements, both ways: answers to publishes, and deliveries within Receive Maximum."""
