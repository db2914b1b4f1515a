"""Administration over HTTP, as the broker's own page and command line use it: `/api/v1`."""
