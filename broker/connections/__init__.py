"""Open connections: their list, what operators see of them, and reading from them."""
