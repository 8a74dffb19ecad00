"""
The corpus of error texts: texts of one cause share a group, texts of two do not.

`pytest -s` prints both rates. The blocks of `held_out.txt` were written before the
normaliser; docs/groups.md tells the rates at first sight.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from deadletter.core.failure.fingerprint import fingerprint_of

CORPUS = Path(__file__).parent / "error_texts"
FILES = ("tuned.txt", "held_out.txt")


def causes(file: str) -> Iterator[tuple[str, list[str]]]:
    """The causes of one file: the type of the error, and texts of that cause."""
    for block in (CORPUS / file).read_text().split("\n\n"):
        lines = [line for line in block.split("\n") if line and line[:2] != "# "]
        if lines:
            texts = [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines[1:]]
            yield lines[0], texts


def group(error_type: str, text: str) -> str:
    return fingerprint_of("orders", error_type, "", text)


def test_the_corpus_is_large() -> None:
    texts = [text for file in FILES for _, some in causes(file) for text in some]

    assert len(texts) >= 300


@pytest.mark.parametrize("file", FILES)
def test_texts_of_one_cause_share_a_group(file: str) -> None:
    pairs = [(kind, *two) for kind, of in causes(file) for two in combinations(of, 2)]

    split = [pair for pair in pairs if group(*pair[:2]) != group(pair[0], pair[2])]

    print(f"\n{file}: {len(split)} of {len(pairs)} pairs of one cause are split")
    assert len(split) * 50 < len(pairs), split


@pytest.mark.parametrize("file", FILES)
def test_texts_of_two_causes_never_share_a_group(file: str) -> None:
    by_type = defaultdict(list)
    for kind, texts in causes(file):
        by_type[kind].append(texts)
    pairs = [
        (kind, one, two)
        for kind, some in by_type.items()
        for these, those in combinations(some, 2)
        for one in these
        for two in those
    ]

    merged = [pair for pair in pairs if group(*pair[:2]) == group(pair[0], pair[2])]

    print(f"\n{file}: {len(merged)} of {len(pairs)} pairs of two causes are merged")
    assert merged == []
