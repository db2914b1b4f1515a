"""A worker: takes messages from a durable queue over AMQP 0.9.1 and acknowledges each when it is done.

    python -m sluicemq.examples.amqp_worker --port 5672 --queue orders

Needs pika. Start it twice and the two share the work; start one with `--group audit` and that group gets
every message again, at its own pace.
"""

import argparse
import sys

try:
    import pika
    from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker
except ImportError:
    sys.exit(f"this example needs pika: {sys.executable} -m pip install pika")

PRECONDITION_FAILED = 406


def main() -> None:
    parser = argparse.ArgumentParser(description="Work on a queue over AMQP 0.9.1.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--address", action="append", help="HOST:PORT instead; of several nodes each")
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--group", help="consumer group; without it the queue's default group")
    options = parser.parse_args()

    addresses = options.address or [f"{options.host}:{options.port}"]
    places = [address.rpartition(":") for address in addresses]
    parameters = [pika.ConnectionParameters(host, int(port)) for host, _, port in places]
    try:  # one after the other
        connection = pika.BlockingConnection(parameters)
    except AMQPConnectionError:
        sys.exit(f"no broker at {', '.join(addresses)}")
    channel = connection.channel()
    try:
        channel.queue_declare(options.queue, durable=True)
    except ChannelClosedByBroker as error:
        if error.reply_code != PRECONDITION_FAILED:
            sys.exit(str(error))
        # somebody used the name before it was declared, which made a queue in memory
        print(f"{error.reply_text}; taking it as it is", file=sys.stderr)
        channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    arguments = {"x-consumer-group": options.group} if options.group else None
    print(f"waiting for messages in {options.queue}; stop with Ctrl-C", flush=True)
    try:
        for method, _, body in channel.consume(options.queue, arguments=arguments):
            again = "  (again)" if method.redelivered else ""
            print(f"{method.routing_key}  {body.decode(errors='replace')}{again}", flush=True)
            channel.basic_ack(method.delivery_tag)
        print("the queue was deleted")
    except ChannelClosedByBroker as error:
        sys.exit(str(error))
    except AMQPConnectionError:
        sys.exit("the broker went away")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
