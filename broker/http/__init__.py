"""HTTP: the page, metrics, administration, and publishing and consuming without another protocol."""
