"""A device and a worker in one program, in as few lines as it takes; needs paho-mqtt and pika.

python -m sluicemq.examples.device_and_worker [MQTT_PORT AMQP_PORT]
"""

import sys

import paho.mqtt.client as mqtt
import pika

mqtt_port, amqp_port = map(int, sys.argv[1:] or (1883, 5672))

# the worker declares the queue, so that it is there and durable before anybody publishes
worker = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)).channel()
worker.queue_declare("coffees", durable=True)

# the device; the wait ends when the broker has the message on disk
device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
device.connect("127.0.0.1", mqtt_port)
device.loop_start()
device.publish("$queue/coffees/eu", "one coffee, please", qos=1).wait_for_publish()

# the worker again: `next` takes one message, a `for` loop would go on
method, properties, body = next(worker.consume("coffees"))
print(f"{method.routing_key}: {body.decode()}")
worker.basic_ack(method.delivery_tag)

device.disconnect()
worker.connection.close()
