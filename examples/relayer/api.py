"""
The HTTP API: takes transactions, answers how they stand.

    POST /relay/direct      202 and the transaction's id
    POST /relay/gasless     202 and the transaction's id
    GET  /relay/status/ID   how it stands
    POST /webhook           the relayer below tells what the chain made of it
"""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from litestar import Litestar, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException, NotAuthorizedException, NotFoundException
from litestar.params import FromPath, HeaderParameter, JSONBody

from deadletter import App, BackendError
from deadletter.core.burial import RETRY_WISH
from deadletter.system import SystemClock, SystemDice

from .database import open_database
from .settings import QUEUE, Settings
from .table import Table
from .values import (
    Accepted,
    DirectTxRequest,
    GaslessTxRequest,
    News,
    RelayMessage,
    Status,
    Transaction,
)


class Desk:
    """Where transactions are handed in."""

    def __init__(self, app: App, table: Table, new_id: SystemDice) -> None:
        self.table = table
        self._app = app
        self._dice = new_id

    async def take(self, kind: str, request: DirectTxRequest | GaslessTxRequest) -> Accepted:
        """
        Write it down, put it on the queue, answer.

        Whoever gets no 202 has to ask again: what was written down then has failed.
        """
        fields = msgspec.to_builtins(request)
        wish = fields.pop("retryOnFailure") or False
        message = RelayMessage(
            transaction_id=self._dice.new_id(), type=kind, request=fields, retry_on_failure=wish
        )
        id_ = message.transaction_id
        await self.table.add(message)
        try:
            await self._app.send(
                QUEUE, message, id=id_, idempotency_key=id_, headers={RETRY_WISH: str(wish).lower()}
            )
        except BackendError as error:
            await self.table.heard(id_, Status.FAILED, hash=None, error="it could not be queued")
            raise HTTPException(
                "The queue cannot be reached: try again.", status_code=503
            ) from error
        await self.table.queued(id_)
        return Accepted(transaction_id=id_, status=Status.QUEUED)


@post("/relay/direct", status_code=202)
async def direct(data: JSONBody[DirectTxRequest], state: State) -> Accepted:
    """Take a call that the relayer makes in its own name."""
    desk: Desk = state.desk
    return await desk.take("direct", data)


@post("/relay/gasless", status_code=202)
async def gasless(data: JSONBody[GaslessTxRequest], state: State) -> Accepted:
    """Take a call that somebody has signed."""
    desk: Desk = state.desk
    return await desk.take("gasless", data)


@get("/relay/status/{id:str}")
async def status(id: FromPath[str], state: State) -> Transaction:
    """How a transaction stands."""
    desk: Desk = state.desk
    transaction = await desk.table.get(id)
    if transaction is None:
        raise NotFoundException("There is no such transaction.")
    return transaction


@post("/webhook", status_code=204)
async def webhook(
    data: JSONBody[News],
    state: State,
    token: Annotated[str, HeaderParameter(name="Authorization")] = "",
) -> None:
    """Hear what the chain made of a transaction."""
    wanted = f"Bearer {state.webhook_token}"
    if not state.webhook_token or not hmac.compare_digest(token.encode(), wanted.encode()):
        raise NotAuthorizedException("The webhook takes a token.")
    desk: Desk = state.desk
    if data.status not in {Status.MINED, Status.CONFIRMED, Status.FAILED}:
        raise HTTPException("The chain cannot say that.", status_code=422)
    await desk.table.heard(data.transaction_id, data.status, hash=data.hash, error=data.error)


@get("/health", status_code=200)
async def health() -> dict[str, str]:
    """Whether requests are answered."""
    return {"status": "pass"}


def build(settings: Settings) -> Litestar:
    """The application."""

    @asynccontextmanager
    async def opened(api: Litestar) -> AsyncIterator[None]:
        database = await open_database(settings.database)
        await database.migrate()
        async with App(settings.sqs, office=settings.office) as app:
            api.state.desk = Desk(app, Table(database, SystemClock()), SystemDice())
            api.state.webhook_token = settings.webhook_token
            yield
        await database.close()

    return Litestar([direct, gasless, status, webhook, health], lifespan=[opened])
