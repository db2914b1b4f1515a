"""Actors of dramatiq as its users write them; the broker's address is in the environment."""

import os
import pathlib

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

broker = RabbitmqBroker(url=os.environ["AMQP_URL"], max_priority=10)
dramatiq.set_broker(broker)


@dramatiq.actor
def write(path, text):
    with pathlib.Path(path).open("a") as told:
        told.write(f"{text}\n")


@dramatiq.actor(max_retries=3, min_backoff=50, max_backoff=100)
def write_at_the_third_try(path):
    with pathlib.Path(path).open("a") as told:
        told.write("tried\n")
    if pathlib.Path(path).read_text().count("tried") < 3:
        raise RuntimeError("try again")
