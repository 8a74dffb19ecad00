"""The sessions of an office: list and end them, recorded in the audit."""

from collections.abc import Sequence
from typing import Final

from deadletter.core.access import Identity, Role, Session, SessionView
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.ports import AccessStore, LetterStore

from .keys import covers, target

_SHORT: Final = 12  # characters of an id


class Sessions:
    """The sessions of one office. With `seen_by`, only those that this caller may see."""

    def __init__(self, access: AccessStore, store: LetterStore) -> None:
        self._access = access
        self._store = store

    async def list(
        self, seen_by: Identity | None = None, *, current: str = ""
    ) -> Sequence[SessionView]:
        """
        Return sessions, latest first; `current` is the hash of the caller's own.

        Everybody sees those opened with their own token. Administrators see all, limited
        ones only those that see no more than they do.
        """
        found = await self._visible(seen_by)
        return [view_session(one, is_current=one.hash == current) for one in found]

    async def end(self, id: str, by: By, *, seen_by: Identity | None = None) -> SessionView:
        """
        End a session on all servers, by its short id.

        Raises NotFound if there is none, or if the caller may not see it.
        """
        session = next((one for one in await self._visible(seen_by) if short_id(one) == id), None)
        if session is None:
            raise NotFound(f"there is no session {id}: it may have ended already")
        detail = f"{session.to.name}; session {id}"
        await self._store.record("end-session", target(session.token_id), by, detail)
        await self._access.close_session(session.hash)
        return view_session(session)

    async def _visible(self, who: Identity | None) -> Sequence[Session]:
        found = await self._access.sessions()
        if who is None:
            return found
        is_admin = who.may(Role.ADMIN)
        return [
            one
            for one in found
            if one.to.principal == who.principal or (is_admin and covers(who, one.to))
        ]


def short_id(session: Session) -> str:
    """Return the id by which people name a session."""
    return session.hash[:_SHORT]


def view_session(session: Session, *, is_current: bool = False) -> SessionView:
    """Return the public part of a session."""
    return SessionView(
        id=short_id(session),
        name=session.to.name,
        role=session.to.role,
        sources=session.to.sources,
        token_id=session.token_id,
        created_at=session.created_at,
        expires_at=session.expires_at,
        current=is_current,
    )
