"""Wiring: the only package that knows both ports and their implementations."""
