"""Screens about letters: the list and its search, and acts on many letters."""
