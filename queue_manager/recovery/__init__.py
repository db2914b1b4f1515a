"""Building queues and groups from their records after a start.

Pure: the driver scans, this makes sense of the rows. What a group had in flight when the broker ended is
available again, attempts kept; what its log cursor had not reached is still in the log.
"""
