"""The process that the broker is: its files, memory, loop and service manager."""
