"""The shift report, for the hand-over."""
