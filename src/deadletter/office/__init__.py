"""Everything a person can do with letters."""
