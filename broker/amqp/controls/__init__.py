"""Publishes to `$queue/...` that are calls: claims, offsets, staged epochs, browsing; and their replies."""
