"""Answers of an office behind a server about its letters."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from deadletter.core.letter import By
from deadletter.office.triage.attention import Need
from deadletter.office.triage.common_values import CommonValues
from deadletter.office.triage.completion import Option
from deadletter.office.triage.facets import Facets, Nearby
from deadletter.office.triage.layout import BodySlice, Form
from deadletter.office.triage.shift_report import ShiftReport

from .connection import API, Connection, part

if TYPE_CHECKING:
    from .client import Client


class Triage:
    """What people ask while they look at dead letters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def facets(self, query: str = "") -> Facets:
        """Return the values of the newest letters that a search finds, by field."""
        return await self._connection.get(f"{API}/letters/facets", Facets, query=query)

    async def nearby(self, id: str) -> Sequence[Nearby]:
        """Count the letters that share a field with a letter, up to a limit each."""
        return await self._connection.get(f"{API}/letters/{part(id)}/nearby", tuple[Nearby, ...])

    async def contents(
        self,
        id: str,
        *,
        start: int = 0,
        form: Form = Form.PRETTY,
        original: bool = False,
        reveal: bool = False,
    ) -> BodySlice:
        """Return a part of the body of a letter; with `reveal` unmasked, which is recorded."""
        revealed = "/revealed" if reveal else ""
        return await self._connection.get(
            f"{API}/letters/{part(id)}/contents{revealed}",
            BodySlice,
            start=start,
            form=form.value,
            original=original or None,
        )

    async def common_values(self, name: str) -> CommonValues:
        """Return what the newest letters of a group have in common, and what varies."""
        return await self._connection.get(f"{API}/groups/{part(name)}/common", CommonValues)

    async def suggest(self, query: str, at: int | None = None) -> Sequence[Option]:
        """Return completions of a search at a position."""
        return await self._connection.get(
            f"{API}/search/suggest", tuple[Option, ...], query=query, at=at
        )

    async def needs(self) -> Sequence[Need]:
        """Return what needs somebody, the most urgent first."""
        return await self._connection.get(f"{API}/needs", tuple[Need, ...])

    async def report(self, since: datetime) -> ShiftReport:
        """Return what happened since a time, who did what, and what is open now."""
        return await self._connection.get(f"{API}/report", ShiftReport, since=since.isoformat())


class RemoteTriage:
    """The answers of an office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._triage = client.triage

    async def facets(self, query: str = "") -> Facets:
        """Return the values of the newest letters that a search finds, by field."""
        return await self._triage.facets(query)

    async def nearby(self, text: str) -> Sequence[Nearby]:
        """Count the letters that share a field with a letter, up to a limit each."""
        return await self._triage.nearby(text)

    async def contents(
        self,
        text: str,
        by: By,
        *,
        start: int = 0,
        form: Form = Form.PRETTY,
        original: bool = False,
        reveal: bool = False,
    ) -> BodySlice:
        """Return a part of the body of a letter; with `reveal` unmasked, which is recorded."""
        return await self._triage.contents(
            text, start=start, form=form, original=original, reveal=reveal
        )

    async def common_values(self, name: str) -> CommonValues:
        """Return what the newest letters of a group have in common, and what varies."""
        return await self._triage.common_values(name)

    async def suggest(self, text: str, at: int | None = None) -> Sequence[Option]:
        """Return completions of a search at a position."""
        return await self._triage.suggest(text, at)

    async def needs(self) -> Sequence[Need]:
        """Return what needs somebody, the most urgent first."""
        return await self._triage.needs()

    async def report(self, since: datetime) -> ShiftReport:
        """Return what happened since a time, who did what, and what is open now."""
        return await self._triage.report(since)
