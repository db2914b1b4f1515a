"""Log lines: which are written, how often, and how a line is fit for a terminal."""
