"""Answers for people who look at dead letters: what is there, what it looks like, what to do."""
