"""The part of RabbitMQ's management API that its tools use, in its form: rabbitmqadmin, exporters, KEDA."""
