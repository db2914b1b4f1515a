"""Several processes as one broker: each worker has a shard of the queues, and all have the same ports.

With `workers: 1` nothing here is imported. `worker_place` says which worker a process is, `worker_settings`
what is not for every worker; `supervisor` starts them and starts again who dies, `supervised` is a worker's
side of that.

The *directory* (`worker_directory`) tells each which queues the others have. A *link* (`asking_link` and
`serving_link` are its ends) leads from a worker to another one: what is asked of it are the calls of
`broker.engine.client`. `sharded_client` is the client over all of them, which front-ends are given in place
of that of their own shard; `workers` puts it together.
"""
