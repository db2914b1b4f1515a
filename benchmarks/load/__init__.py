"""Cheap raw-socket clients: frames are encoded once, counting is done by length, one process per client."""
