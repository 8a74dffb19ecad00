"""What a page is made of: blocks, commands with their transcripts, links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BACKENDS = sorted((ROOT / "docs" / "backends").glob("*.md"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *BACKENDS])
MORE_PAGES = sorted(
    [
        *(ROOT / "docs" / "adr").glob("*.md"),
        *(ROOT / "docs" / "recipes").glob("*.md"),
        *(ROOT / "docs" / "systems").glob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
    ]
)  # to look up or to see in passing; nobody follows them step by step

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml))$")
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PROMPT = "$ "


class Block(NamedTuple):
    """A fenced block; `line` is where its text begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file a reader is to save it as, if its first line names one."""
        named = _FILE.match(self.text.partition("\n")[0])
        return named[1] if named else None


class Command(NamedTuple):
    """A line after a prompt, and what the page shows of its answer."""

    text: str
    shown: list[str]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in _BLOCK.finditer(text)
    ]


def commands(transcript: str) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for line in transcript.splitlines():
        if line.startswith(_PROMPT):
            found.append(Command(line.removeprefix(_PROMPT), []))
        elif found:
            found[-1].shown.append(line)
    return found


def links(text: str) -> list[str]:
    """Where a page leads, outside of its code."""
    return _LINK.findall(_BLOCK.sub("", text))


def headings(text: str) -> list[str]:
    """The headings of a page."""
    return _HEADING.findall(_BLOCK.sub("", text))


def anchors(text: str) -> Iterator[str]:
    """The headings of a page, as links name them."""
    for heading in headings(text):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        yield kept.replace(" ", "-")
