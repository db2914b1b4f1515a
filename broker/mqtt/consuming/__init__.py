"""SUBSCRIBE, and deliveries of queues and streams; retained messages and `$SYS`."""
