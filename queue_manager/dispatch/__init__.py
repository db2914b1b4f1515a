"""Who is given which message: in order, by selector, by key."""
