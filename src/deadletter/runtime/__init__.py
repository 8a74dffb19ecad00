"""Runs handlers: receive, attempt, settle."""
