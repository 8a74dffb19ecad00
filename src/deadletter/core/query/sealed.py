"""
Searches of those to whom secrets are shown masked.

Whoever may ask for `body.token:a*`, then for `body.token:b*`, reads the token as well
as if it were shown. So they search for nothing by a name whose value is masked, and
their words are looked for in error texts, which hold no secrets, but not in bodies.
"""

from deadletter.core.errors import QueryError
from deadletter.core.redact import is_secret_name

from .ast import All, Any, Node, Not, Op, Term, Word


def sealed(node: Node, query: str) -> Node:
    """The search as it may be asked; `query` is what it was read from."""
    match node:
        case Term(path=path) if any(map(is_secret_name, path)):
            name = ".".join((node.field, *path))
            raise QueryError(
                f"{name} is masked for you, and so cannot be searched for",
                query=query,
                at=node.at,
            )
        case Word(text, at):
            return Term("text", Op.IS, (text,), at=at)
        case Not(term):
            return Not(sealed(term, query))
        case All(terms):
            return All(tuple(sealed(term, query) for term in terms))
        case Any(terms):
            return Any(tuple(sealed(term, query) for term in terms))
        case Term():
            return node
