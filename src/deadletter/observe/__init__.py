"""Rendering of events: logs, metrics, traces and alerts."""
