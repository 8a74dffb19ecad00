"""Screens about replays: the list, planning one, and watching it."""
