"""Acknowledgements, both ways: answers to publishes, `$ack` and the like, and the Receive Maximum."""
