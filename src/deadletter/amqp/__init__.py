"""Our own small AMQP 0-9-1 client: RabbitMQ's engine and its intake speak by it."""
