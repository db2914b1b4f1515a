"""AMQP 1.0 (OASIS, 2012), server side.

`types` is the codec of the type system, `performatives` the frames' bodies and what they hold as named
tuples, `errors` how a peer's mistakes are told.
"""
