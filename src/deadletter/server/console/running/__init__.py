"""Screens about the office itself: audit, access, system."""
