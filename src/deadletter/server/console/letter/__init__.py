"""Screens about one letter: its story and body, editing and comparing it."""
