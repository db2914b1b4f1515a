"""The MQTT front-end: between `protocols.mqtt`, plain pub/sub and the queue manager."""
