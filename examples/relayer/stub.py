"""
The relayer below, played: takes transactions over HTTP, and fails when told to.

    python -m relayer.stub

    POST /transactions      what a relayer takes; idempotent by Idempotency-Key
    POST /failures          how the next ones fail: status, message, delay, times, to
    GET  /requests          how often each transaction came

With WEBHOOK_URL set it reports each transaction as confirmed, as a chain would.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

import httpx
import uvicorn
from litestar import Litestar, Response, delete, get, post
from litestar.datastructures import State
from litestar.params import HeaderParameter, JSONBody
from msgspec import Struct


class Fault(Struct, kw_only=True):
    """How requests fail; `times` of them, only those to an address if one is given."""

    status: int = 500
    message: str = "internal error"
    times: int = 1
    delay: float = 0.0  # seconds before the answer
    to: str | None = None
    after: bool = False  # the transaction is taken first, and only the answer is bad


class Ledger:
    """What has come in, and how the next ones are to fail."""

    def __init__(self, webhook: str, token: str) -> None:
        self.requests: Counter[str] = Counter()
        self.taken: dict[str, str] = {}
        self.faults: list[Fault] = []
        self._webhook = webhook
        self._token = token
        self._telling: set[asyncio.Task[None]] = set()

    def fault(self, to: object) -> Fault | None:
        """What goes wrong with a transaction to this address, if anything."""
        for fault in self.faults:
            if fault.times > 0 and fault.to in (None, to):
                fault.times -= 1
                return fault
        return None

    def take(self, key: str) -> str:
        """Accept a transaction; the same again is the same."""
        if key not in self.taken:
            self.taken[key] = f"r-{len(self.taken) + 1}"
            if self._webhook:
                telling = asyncio.create_task(self._tell(key))
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)
        return self.taken[key]

    async def _tell(self, key: str) -> None:
        hash_ = f"0x{sha256(key.encode()).hexdigest()}"
        async with httpx.AsyncClient() as client:
            await client.post(
                self._webhook,
                headers={"Authorization": f"Bearer {self._token}"},
                json={"transactionId": key, "status": "confirmed", "hash": hash_},
            )


@post("/transactions")
async def submit(
    data: JSONBody[dict[str, Any]],
    state: State,
    key: Annotated[str, HeaderParameter(name="Idempotency-Key")],
) -> Response[dict[str, str]]:
    """Take a transaction, or fail as told."""
    ledger: Ledger = state.ledger
    ledger.requests[key] += 1
    fault = ledger.fault(data.get("to"))
    if fault is None:
        return Response({"id": ledger.take(key)}, status_code=201)
    if fault.after:
        ledger.take(key)
    await asyncio.sleep(fault.delay)
    return Response({"message": fault.message}, status_code=fault.status)


@post("/failures", status_code=204)
async def fail(data: JSONBody[Fault], state: State) -> None:
    """Have requests fail from now on."""
    state.ledger.faults.append(data)


@delete("/failures")
async def recover(state: State) -> None:
    """Be well again."""
    state.ledger.faults.clear()


@get("/requests")
async def requests(state: State) -> dict[str, int]:
    """How often each transaction came."""
    return dict(state.ledger.requests)


def build(environ: Mapping[str, str]) -> Litestar:
    """The server."""
    ledger = Ledger(environ.get("WEBHOOK_URL", ""), environ.get("WEBHOOK_TOKEN", ""))
    return Litestar([submit, fail, recover, requests], state=State({"ledger": ledger}))


if __name__ == "__main__":
    uvicorn.run(
        build(os.environ),
        host="127.0.0.1",
        port=int(os.environ.get("STUB_PORT", "8600")),
        log_level="warning",
    )
