"""Values and tables as Markdown."""

# ruff: noqa: INP001 -- a script's module, not a package

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines
    )


def span(seconds: float) -> str:
    """A length of time in the largest unit that fits it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def shown(value: object) -> str:
    """A value as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
