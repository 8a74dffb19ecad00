"""Acts of callers on letters and replays, the same for the API and for the console."""
