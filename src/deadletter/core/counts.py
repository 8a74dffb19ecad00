"""Counts of things, as people write them."""


def many(count: int, one: str, more: str | None = None) -> str:
    """Return a count and its noun: `1 letter`, `2,000 letters`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def attempts_of(count: int) -> str:
    """How often something was tried before it died, for people; 0 is unknown."""
    return f"after {many(count, 'attempt')}" if count else "attempts unknown"
