"""Sending letters back where mailboxes and office are one engine."""

from typing import Protocol

from msgspec import Struct


class Posted(Struct, frozen=True):
    """How many copies went out at once, and the bytes of their bodies."""

    letters: int = 0
    size: int = 0
    left_out: int = 0  # letters looked at that did not go
    refused: int = 0  # letters that the server they go to did not take


class Postman(Protocol):
    """
    Takes letters of a campaign, sends their copies and records that, all in one.

    An engine has one when its letters and its mailboxes can be written in one
    transaction. Elsewhere these are three steps, and what was taken but not yet
    recorded as sent when the sender died is sent again.
    """

    @property
    def at_once(self) -> int:
        """How many small letters to send at once, for nobody to wait long by it."""

    async def send_back(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Posted:
        """
        Send the next letters of a running campaign, in one transaction.

        The rules are those of `take_replay`; a copy keeps an expiry only if that is
        still to come. Nothing when nothing is left, or the campaign is not running.
        """
