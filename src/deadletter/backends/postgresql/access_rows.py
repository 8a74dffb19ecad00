"""Tokens, sessions and answers as rows, and back."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.access import Answer, Pass, Role, Session, Token
from deadletter.core.escaping import shown, stored

from .text import legible, storable

TOKEN: Final = """
id, hash, created_at, created_by, expires_at, last_used_at, name, role, sources,
principal
"""  # noqa: S105 -- columns
SESSION: Final = """
hash, csrf, created_at, expires_at, name, role, sources, principal, token_id
"""
ANSWER: Final = "key, request, status, body, content_type, expires_at"


def token_row(token: Token) -> Sequence[Any]:
    """A token as it is stored."""
    return storable(
        (
            *(token.id, token.hash, token.created_at, token.created_by),
            *(token.expires_at, token.last_used_at, *_pass_row(token.to)),
        )
    )


def session_row(session: Session) -> Sequence[Any]:
    """A session as it is stored."""
    return storable(
        (
            *(session.hash, session.csrf, session.created_at, session.expires_at),
            *(*_pass_row(session.to), session.token_id),
        )
    )


def answer_row(answer: Answer) -> Sequence[Any]:
    """An answer as it is stored."""
    return storable(
        (
            *(answer.key, answer.request, answer.status, answer.body),
            *(answer.content_type, answer.expires_at),
        )
    )


def token_of(row: Any) -> Token:
    """A token, of a row of columns in the order of `TOKEN`."""
    id_, hash_, created_at, created_by, expires_at, used_at, *to = legible(row)
    return Token(
        id=id_,
        hash=hash_,
        to=_pass(*to),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        last_used_at=used_at,
    )


def session_of(row: Any) -> Session:
    """A session, of a row of columns in the order of `SESSION`."""
    hash_, csrf, created_at, expires_at, *to, token_id = legible(row)
    return Session(
        hash=hash_,
        to=_pass(*to),
        token_id=token_id,
        csrf=csrf,
        created_at=created_at,
        expires_at=expires_at,
    )


def answer_of(row: Any) -> Answer:
    """An answer, of a row of columns in the order of `ANSWER`."""
    key, request, status, body, content_type, expires_at = legible(row)
    return Answer(
        key=key,
        request=request,
        status=status,
        body=body,
        content_type=content_type,
        expires_at=expires_at,
    )


def _pass_row(to: Pass) -> Sequence[Any]:
    sources = [stored(source) for source in to.sources]
    return to.name, to.role, sources, to.principal


def _pass(name: str, role: str, sources: Sequence[str], principal: str) -> Pass:
    return Pass(
        name=name,
        role=Role(role),
        sources=tuple(shown(source) for source in sources),
        principal=principal,
    )
