"""A Celery application as its users write them; the broker's address is in the environment."""

import os
import threading

from celery import Celery

app = Celery("tests", broker=os.environ["AMQP_URL"], backend="rpc://")
app.conf.update(
    task_default_queue=os.environ["TASK_QUEUE"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=60,
    worker_hijack_root_logger=False,
)


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def fail_twice(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task
def fail():
    raise ValueError("as asked")


@app.task
def tell_and_stay_at_first(path):
    is_first = not os.path.exists(path)
    with open(path, "a") as told:
        told.write("begun\n")
    if is_first:
        threading.Event().wait()  # until the worker is killed
    with open(path, "a") as told:
        told.write("done\n")
    return "done"
