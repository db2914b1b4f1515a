"""TLS: the contexts of listeners, which certificate a client showed, certificates for trying out."""
