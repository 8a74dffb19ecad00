"""Screens about mailboxes, lent queues and intake."""
