"""
Mailboxes on Amazon SQS, standard and FIFO (names that end in .fifo).

    sqs://                             region and credentials from the usual AWS chain
    sqs://eu-west-1                    ...in this region
    sqs+http://localhost:4566          another endpoint: an emulator; sqs+https:// too
    ?prefix=shop-                      of all queue names
    ?claim_check=s3://bucket/prefix    where bodies go that are too large for SQS;
                                       or file:///a/directory that all processes share

It keeps neither letters nor a ledger: pair it with an office.
"""

from deadletter.core.errors import ConfigError
from deadletter.ports.engine import Engine
from deadletter.ports.time import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open what a URL names, once the service has answered."""
    try:
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"aiobotocore", "botocore"}:
            raise
        raise ConfigError(
            "sqs:// needs its client: pip install 'deadletter[sqs]'"
        ) from error
    return await connect(url, clock=clock, dice=dice)
