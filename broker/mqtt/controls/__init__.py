"""Publishes to `$queue/...` that are calls: claims, positions, offsets."""
