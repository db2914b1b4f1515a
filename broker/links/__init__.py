"""Links to other brokers that administration makes while the broker runs, and webhooks: each is a parameter,
kept on the store, and a supervised task.

The broker's own side of a link is an AMQP connection without a socket of the network, so that what holds for
clients (confirms, prefetch, order) holds for links.
"""
