"""The running broker: command line, composition, listeners, sessions, plain pub/sub."""
