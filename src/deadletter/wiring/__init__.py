"""The only place that knows both ends of a port: URLs become engines."""
