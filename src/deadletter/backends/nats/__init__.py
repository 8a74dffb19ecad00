"""
Mailboxes in NATS JetStream (server 2.10 or later).

    nats://user:password@host:4222     tls:// with TLS; several hosts with commas
    ?creds=me.creds                    instead of a password: a file of credentials
    ?cafile=&certfile=&keyfile=        with tls://: an authority, our certificate
    ?prefix=shop                       of all our streams and subjects; dlq if not said
    ?replicas=3                        copies of each stream, in a cluster
    ?stream=ORDERS                     mailboxes are subjects of this existing stream
    ?consumer=billing                  ...read by this durable consumer of it

It keeps neither letters nor a ledger: pair it with an office.
"""

from deadletter.core.errors import ConfigError
from deadletter.ports.engine import Engine
from deadletter.ports.time import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open what a URL names, once the server has answered."""
    try:
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "nats":
            raise
        raise ConfigError(
            "nats:// needs its client: pip install 'deadletter[nats]'"
        ) from error
    return await connect(url, clock=clock)
