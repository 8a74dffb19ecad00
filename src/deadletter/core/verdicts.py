"""
Verdicts on letters before they are sent back, and what happens to each by default.

Every surface follows this one table: the command, the HTTP API, the client.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from .errors import ConfigError


class Verdict(StrEnum):
    """What to expect of replaying one letter. The first that applies."""

    WRONG_STATE = "wrong-state"  # not sent: replaying, replayed, closed, discarded
    PAST_CAP = "past-cap"  # not sent: quarantined instead
    ELSEWHERE = "elsewhere"  # not sent: it was drained from another server
    PROCESSED = "already-processed"  # the ledger has seen it handled meanwhile
    UNREADABLE = "unreadable"  # its body does not fit the handler: it would die at once
    ID_IN_USE = "id-in-use"  # another job has its id; its copy goes under a new one
    EXPIRED = "expired"  # too late by its own word; its copy goes without the expiry
    NO_MAILBOX = "no-mailbox"  # nobody has made or worked that mailbox yet
    CREDENTIALS = "credentials"  # its headers hold some, which may be stale by now
    ORDERED = "ordered"  # newer messages of its key may have gone ahead
    READY = "ready"


class Treatment(StrEnum):
    """What is done with letters of one verdict."""

    SEND = "send"
    LEAVE_OUT = "leave-out"
    ASK = "ask"  # sent if somebody agrees


DEFAULTS: Final = {
    Verdict.WRONG_STATE: Treatment.LEAVE_OUT,
    Verdict.PAST_CAP: Treatment.LEAVE_OUT,
    Verdict.ELSEWHERE: Treatment.LEAVE_OUT,
    Verdict.PROCESSED: Treatment.LEAVE_OUT,
    Verdict.UNREADABLE: Treatment.LEAVE_OUT,
    Verdict.ID_IN_USE: Treatment.LEAVE_OUT,
    Verdict.EXPIRED: Treatment.ASK,
    Verdict.NO_MAILBOX: Treatment.SEND,
    Verdict.CREDENTIALS: Treatment.SEND,
    Verdict.ORDERED: Treatment.SEND,
    Verdict.READY: Treatment.SEND,
}
"""What is done with letters of each verdict, unless somebody says otherwise."""

BLOCKED: Final = frozenset({Verdict.WRONG_STATE, Verdict.PAST_CAP, Verdict.ELSEWHERE})
"""Verdicts with which a letter is never sent; including them is an error."""


def treatment(
    verdict: Verdict, skip: Collection[Verdict], include: Collection[Verdict]
) -> Treatment:
    """Return what is done with letters of a verdict, given what somebody said."""
    if verdict in skip:
        return Treatment.LEAVE_OUT
    return Treatment.SEND if verdict in include else DEFAULTS[verdict]


def check_verdicts(skip: Collection[Verdict], include: Collection[Verdict]) -> None:
    """Refuse to include what can never be sent, or what is skipped as well."""
    for verdict in sorted(BLOCKED.intersection(include)):
        allowed = ", ".join(one for one in Verdict if one not in BLOCKED)
        raise ConfigError(
            f"letters with the verdict {verdict} are never sent, so they cannot be"
            f" included; include one of {allowed}"
        )
    for verdict in sorted(set(skip).intersection(include)):
        raise ConfigError(
            f"the verdict {verdict} is both skipped and included: name it once"
        )
