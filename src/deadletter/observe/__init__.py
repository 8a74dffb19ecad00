"""Renders events: logs, metrics, traces."""
