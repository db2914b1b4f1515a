"""Several processes as one broker: each worker has a shard of the queues, and all have the same ports.

With `workers: 1` nothing here is imported. `worker_place` says which worker a process is, `worker_settings`
what is not for every worker; `supervisor` starts them and starts again who dies, `supervised` is a worker's
side of that.
"""
