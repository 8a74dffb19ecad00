"""Values and tables as Markdown."""

# ruff: noqa: INP001 -- a script's module, not a package

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Final

WIDEST: Final = 120  # columns of a line of prose


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def wrapped(text: str) -> str:
    """Wrap the lines of list items that are too wide, and leave all others."""
    return "\n".join(
        _wrapped_item(line) if line.startswith(("* ", "    ")) else line
        for line in text.split("\n")
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


def _wrapped_item(line: str) -> str:
    if len(line) <= WIDEST:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return fill(
        line.strip(),
        WIDEST,
        initial_indent=indent,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
