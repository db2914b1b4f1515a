"""Links that clients send on: from transfers to the queue manager."""
