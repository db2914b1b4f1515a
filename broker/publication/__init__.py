"""The common part of all ways in that publish.

A publication is a message, an address and the identity of its publisher. Here is found where it goes, as far
as the publisher is permitted to, and what of its properties is for the broker and what for consumers; the
queue manager judges and applies the rest (`PublishingClient.publish`). Front-ends, HTTP and administration
read the outcome into their own answers, and have no rules of their own.
"""
