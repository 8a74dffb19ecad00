"""Screens about groups: the list, one group, and acts on them."""
