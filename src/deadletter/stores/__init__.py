"""Engines: one file or small folder each; none knows another."""
