"""The queue server: lease queues over HTTP, for clients in any language."""
