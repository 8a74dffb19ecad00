"""Free words in a search: text that may stand anywhere in a letter."""

from .ast import All, Any, Node, Not, Term, Word


def first_word(node: Node) -> Word | None:
    """Return the first free word of a search, None if all of it names fields."""
    match node:
        case Word():
            return node
        case Term():
            return None
        case Not(term):
            return first_word(term)
        case All(terms) | Any(terms):
            found = (first_word(term) for term in terms)
            return next((word for word in found if word is not None), None)
