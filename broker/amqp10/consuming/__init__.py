"""Links that clients receive on: sources, filters, credit, deliveries."""
