"""MQ-Core over HTTP: queues are paths, messages come and go by GET, POST and DELETE."""
