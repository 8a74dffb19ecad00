"""
Output that never blocks whoever writes it.

A pipe that nobody reads is full after 64 KB, and the next line would freeze the
process for as long as that lasts. So lines that cannot be written at once wait in a
bounded queue, and a thread of their own waits for the reader. When the queue is full,
lines are dropped and counted; the reader finds the count where they are missing.
"""
