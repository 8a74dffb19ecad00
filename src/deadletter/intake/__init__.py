"""Draining the dead places of others, one file per engine; none knows another."""
