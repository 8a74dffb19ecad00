"""The dead letter office for message consumers."""
