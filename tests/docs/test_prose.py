"""Prose that people can read once: short sentences, narrow lines, plain words."""

import re
from pathlib import Path

import pytest

from docs.reading import ROOT

PAGES = sorted(
    page
    for folder in (
        ROOT,
        ROOT / "docs",
        *(ROOT / "docs").glob("*/"),
        *(ROOT / "examples").glob("*/"),
    )
    for page in folder.glob("*.md")
)
WIDEST = 120
LONGEST = 40  # words in one sentence; about 25 is the aim

# Phrases that readers had to read twice, and the plain words for them.
RIDDLES = {
    r"cannot be had": "is not available",
    r"\bis none\b": "is not valid, or is missing",
    r"that (?:is|are) none\b": "that is not valid",
    r"\bso many\b": "the number",
    r"\bso often\b": "N times",
    r"\bsaid alone\b": "without other options",
    r"\bis told of\b": "is reported",
    r"\bwhat is another\b": "changes",
    r"\bas it goes\b": "unlimited",
    r"\bnone of them minds\b": "every step is idempotent",
    r"\bAll is well\b": "what was checked, and its result",
    r"\bhas little to spare\b": "is close to its limit",
}

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z*(`])|(?<=[.!?])\s")


def prose(page: Path) -> str:
    """Return a page without its code and comments; lines keep their places."""
    text = page.read_text()
    for part in (_FENCE, _COMMENT):
        text = part.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; each cell of a table is a text of its own."""
    found: list[str] = []
    for paragraph in _PARAGRAPH.split(text):
        is_table = paragraph.lstrip().startswith("|")
        for part in paragraph.replace("\n", "|").split("|") if is_table else [paragraph]:
            plain = re.sub(r"`[^`]*`", "CODE", _LINK.sub(r"\1", " ".join(part.split())))
            found += _END.split(plain)
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sentences_are_short(page: Path) -> None:
    too_long = [one for one in sentences(prose(page)) if len(one.split()) > LONGEST]

    assert too_long == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_fit_a_screen(page: Path) -> None:
    too_wide = [
        f"{number}: {line[:60]}…"
        for number, line in enumerate(prose(page).splitlines(), 1)
        if len(line) > WIDEST and not line.lstrip().startswith("|") and " " in line[:WIDEST].strip()
    ]

    assert too_wide == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_words_are_plain(page: Path) -> None:
    text = prose(page)

    riddles = {
        found[0]: instead
        for phrase, instead in RIDDLES.items()
        for found in re.finditer(phrase, text)
    }

    assert riddles == {}
