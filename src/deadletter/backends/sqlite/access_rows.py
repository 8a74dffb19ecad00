"""Tokens, sessions and answers as rows, and back."""

from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.access import Answer, Pass, Role, Session, Token

from .rows import micros, when
from .sql import Row, shown

TOKEN: Final = """
id, hash, created_at, created_by, expires_at, last_used_at, name, role, sources,
principal
"""  # noqa: S105 -- columns
SESSION: Final = """
hash, csrf, created_at, expires_at, name, role, sources, principal, token_id
"""
ANSWER: Final = "key, request, status, body, content_type, expires_at"

_sources: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def token_row(token: Token) -> Row:
    """A token as it is stored."""
    return (
        *(token.id, token.hash, micros(token.created_at), token.created_by),
        *(_micros(token.expires_at), _micros(token.last_used_at)),
        *_pass_row(token.to),
    )


def session_row(session: Session) -> Row:
    """A session as it is stored."""
    return (
        *(session.hash, session.csrf),
        *(micros(session.created_at), micros(session.expires_at)),
        *(*_pass_row(session.to), session.token_id),
    )


def _pass_row(to: Pass) -> Row:
    sources = msgspec.json.encode(to.sources).decode()
    return to.name, to.role, sources, to.principal


def _pass(name: str | bytes, role: str, sources: str, principal: str) -> Pass:
    return Pass(
        name=shown(name),
        role=Role(role),
        sources=_sources(sources),
        principal=principal,
    )


def token_of(row: Row) -> Token:
    """A token, of a row of columns in the order of `TOKEN`."""
    id_, hash_, created_at, created_by, expires_at, last_used_at, *to = row
    return Token(
        id=id_,
        hash=hash_,
        to=_pass(*to),
        created_at=when(created_at),
        created_by=shown(created_by),
        expires_at=_when(expires_at),
        last_used_at=_when(last_used_at),
    )


def session_of(row: Row) -> Session:
    """A session, of a row of columns in the order of `SESSION`."""
    hash_, csrf, created_at, expires_at, *to, token_id = row
    return Session(
        hash=hash_,
        to=_pass(*to),
        token_id=token_id,
        csrf=csrf,
        created_at=when(created_at),
        expires_at=when(expires_at),
    )


def answer_row(answer: Answer) -> Row:
    """An answer as it is stored."""
    return (
        *(answer.key, answer.request, answer.status, answer.body),
        *(answer.content_type, micros(answer.expires_at)),
    )


def answer_of(row: Row) -> Answer:
    """An answer, of a row of columns in the order of `ANSWER`."""
    key, request, status, body, content_type, expires_at = row
    return Answer(
        key=shown(key),
        request=shown(request),
        status=status,
        body=body,
        content_type=shown(content_type),
        expires_at=when(expires_at),
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _when(at: int | None) -> datetime | None:
    return None if at is None else when(at)
