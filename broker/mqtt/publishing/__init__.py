"""PUBLISH and wills: the queues and subscribers that a publish goes to."""
