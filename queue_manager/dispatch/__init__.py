"""The choice of a consumer for each message: in order, by selector, by key."""
