"""One module per record type, each with `key`, `parse_key`, `prefix`, `encode` and `decode`."""
