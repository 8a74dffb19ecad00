"""Searches for odd text, for tests that compare an office with `core.query`."""

import itertools
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.core.letter import DeadLetter
from deadletter.core.query.ast import All, Node, Not, Op, Term
from deadletter.core.query.fields import FIELDS, Kind, pattern
from deadletter.testing.letters_bench import a_letter

_OPEN: Final = Term("is", Op.IS, ("open",))
_WITHIN: Final[list[Callable[[Node], Node]]] = [
    lambda term: term,
    Not,
    lambda term: All((term, _OPEN)),
]


def odd_letter(attribute: str, text: str) -> DeadLetter:
    """A letter with odd text in one place of its head."""
    letter = a_letter()
    head = replace(letter.head, **{attribute: text})
    message = replace(letter.message, id=head.message_id)
    return replace(letter, head=head, message=message)


@st.composite
def patterns_of(draw: st.DrawFn, texts: list[str]) -> str:
    """Patterns that fit one of these texts, or nearly."""
    text = draw(st.sampled_from(texts))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    ends = [0, *cuts, len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(ends)]
    place = draw(st.integers(0, 2 * len(parts)))
    if place < len(parts):
        parts[place] = draw(st.sampled_from(["", "z", "0", text.swapcase()]))
    return pattern(parts)


@st.composite
def odd_searches(draw: st.DrawFn, stock: list[str]) -> tuple[list[DeadLetter], Node]:
    """Letters with some text of the stock in one place, and a search for it."""
    field = draw(
        st.sampled_from(
            [field for field in FIELDS.values() if field.kind is Kind.TEXT and field.name != "id"]
        )
    )
    texts = draw(st.lists(st.sampled_from(stock), min_size=1, max_size=4, unique=True))
    patterns = draw(st.lists(patterns_of(texts), min_size=1, max_size=2))
    within = draw(st.sampled_from(_WITHIN))
    letters = [odd_letter(field.attribute, text) for text in texts]
    return letters, within(Term(field.name, Op.IS, tuple(patterns)))
