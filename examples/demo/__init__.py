"""The main job end to end, with the broker killed in the middle: `make demo`."""
