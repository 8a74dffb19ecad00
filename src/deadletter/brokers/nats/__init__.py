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

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL, once the server has answered."""
    with client_library("nats", "nats", "nats"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url, clock=clock)
