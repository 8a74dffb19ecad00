"""
A render farm on the queue server: films are made frame by frame, by whoever is free.

A producer puts frames into a queue, workers lease and render them, and what cannot be
rendered lies in a dead queue until an operator has looked at it.
"""
