"""What a person can do with letters."""
