"""Virtual hosts, and the hub that leads a front-end to the parts of one."""
