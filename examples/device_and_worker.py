"""A device and a worker in one program, in as few lines as it takes; needs paho-mqtt and pika.

python examples/device_and_worker.py [MQTT_PORT AMQP_PORT]
"""

import sys

import paho.mqtt.publish as device
import pika

mqtt_port, amqp_port = map(int, sys.argv[1:] or (1883, 5672))

# the worker declares the queue, so that it is there and durable before anybody publishes
worker = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)).channel()
worker.queue_declare("coffees", durable=True)

# the device: returns when the broker has the message on disk
device.single("$queue/coffees/eu", "one coffee, please", qos=1, port=mqtt_port)

# the worker again: `next` takes one message, a `for` loop would go on
method, properties, body = next(worker.consume("coffees"))
print(f"{method.routing_key}: {body.decode()}")
worker.basic_ack(method.delivery_tag)
worker.connection.close()
