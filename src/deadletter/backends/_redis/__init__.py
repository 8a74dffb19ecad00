"""
What engines on a Redis server share: the way to it, and how claims are made on it.

No engine by itself. Every verb of such an engine is one script; here is what is done
around it: connections, errors, lost answers, waiting.
"""
