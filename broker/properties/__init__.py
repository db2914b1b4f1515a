"""A message's properties: one model for all protocols, and for each a module that reads and writes it.

Protocols translate to the model and from it, never to each other. What arrives and leaves by one protocol is
not translated: it stays the block of bytes it came as.
"""
