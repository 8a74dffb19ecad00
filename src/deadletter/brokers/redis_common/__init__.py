"""
Parts that the engines on a Redis server share: connections, claims, sends.

Every operation of such an engine is one script. The code around the scripts is here:
connections, errors, calls without an answer, waiting.
"""
