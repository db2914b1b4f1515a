"""The subjects of the `sluicemq` command that talk to a running broker."""
