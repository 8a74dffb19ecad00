"""The relayer below us, which signs transactions and sends them to the chain."""

from typing import Any

import httpx
import msgspec

from .values import RelayMessage


class RelayError(Exception):
    """The relayer below said no: in its words, with the status that it answered."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Downstream:
    """Submits transactions over HTTP."""

    def __init__(self, url: str, patience: float) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=patience)

    async def submit(self, message: RelayMessage) -> str:
        """
        Hand a transaction over; what the relayer calls it.

        The key makes a second try of the same transaction harmless, also when the
        first was taken and only its answer got lost.
        """
        answer = await self._client.post(
            "/transactions",
            json={"type": message.type, **message.request},
            headers={"Idempotency-Key": message.transaction_id},
        )
        if answer.is_success:
            return str(_body(answer)["id"])
        raise RelayError(_said(answer), answer.status_code)

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _said(answer: httpx.Response) -> str:
    """The sentence in an error, wherever it is."""
    body = _body(answer)
    told = body.get("message") or body.get("error") or answer.text[:500]
    return str(told) or f"HTTP {answer.status_code}"
