"""Bulk repair: the same change to the bodies of many letters."""
