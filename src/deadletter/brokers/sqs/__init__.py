"""
Mailboxes on Amazon SQS, standard and FIFO (names that end in .fifo).

    sqs://                             region and credentials from the usual AWS chain
    sqs://eu-west-1                    ...in this region
    sqs+http://localhost:4566          another endpoint: an emulator; sqs+https:// too
    ?prefix=shop-                      of all queue names
    ?account=123456789012              whose queues these are, if they are not ours
    ?retry=visibility                  SQS redelivers what failed, and counts to its limit
    ?create=no                         use the queues that exist; make and change none
    ?claim_check=s3://bucket/prefix    where bodies go that are too large for SQS;
                                       or file:///a/directory that all processes share

It keeps neither letters nor a ledger: pair it with an office.
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL; the service must answer."""
    with client_library("sqs", "sqs", "aiobotocore", "botocore"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url, clock=clock, dice=dice)
