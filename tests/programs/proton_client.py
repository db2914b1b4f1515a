"""A program of Qpid Proton (Debian's python3-qpid-proton): each line that it prints is a result.

Run with the system's Python: `proton_client.py URL QUEUE`.
"""

import sys

from proton import Delivery, Described, Message, symbol, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection, SendException


def main(url, queue):
    connection = BlockingConnection(url, timeout=10)
    sender = connection.create_sender(f"/queues/{queue}")
    for number in range(3):
        body = {"number": number} if number == 2 else f"message {number}"
        message = Message(body, id=ulong(number), durable=True, properties={"even": number % 2 == 0})
        print("sent", sender.send(message).remote_state == Delivery.ACCEPTED)
    receiver = connection.create_receiver(f"/queues/{queue}", credit=1)
    first = receiver.receive()
    print("received", first.id, first.body, first.delivery_count)
    receiver.release(delivered=False)
    again = receiver.receive()
    print("again", again.id, again.delivery_count)
    receiver.release(delivered=True)
    modified = receiver.receive()
    print("modified", modified.id, modified.delivery_count)
    receiver.accept()
    receiver.close()
    wanted = Filter({symbol("s"): Described(symbol("apache.org:selector-filter:string"), "even = TRUE")})
    selecting = connection.create_receiver(f"/queues/{queue}", credit=1, options=wanted)
    selected = selecting.receive()
    print("selected", selected.id, selected.body)
    selecting.accept()
    selecting.close()
    requests = connection.create_receiver(None, dynamic=True)
    print("dynamic", requests.link.remote_source.address.startswith("/queues/amq.dyn-"))
    sender.close()
    anonymous = connection.create_sender(None)
    try:
        anonymous.send(Message("lost", address="/queues/not-there"))
    except SendException as refused:
        print("released", refused.state == Delivery.RELEASED)
    connection.close()


main(*sys.argv[1:])
