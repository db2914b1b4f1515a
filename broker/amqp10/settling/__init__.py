"""Outcomes, both ways: of what the client publishes, and of what it was given."""
