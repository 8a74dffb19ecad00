"""A broker that records its calls."""

from collections.abc import Sequence
from typing import Any

from deadletter.core.message import Delivery
from deadletter.core.message import Message as Sent
from deadletter.ports import Acked


class BrokerRecorder:
    """Records the calls of a broker, and passes them on."""

    def __init__(self, inner: Any, notes: list[str]) -> None:
        self._inner = inner
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sink(self, name: str) -> Any:
        return SinkRecorder(self._inner.sink(name), self._notes)

    def source(self, name: str) -> Any:
        return SourceRecorder(self._inner.source(name), self._notes)


class SinkRecorder(BrokerRecorder):
    async def send(self, messages: Sequence[Sent], **more: Any) -> None:
        self._notes.append(f"sent to {self._inner.mailbox}")
        await self._inner.send(messages, **more)


class SourceRecorder(BrokerRecorder):
    async def receive(self, **asked: Any) -> Sequence[Delivery]:
        wait, lease = asked["wait"], asked["lease"]
        self._notes.append(f"asked {self._inner.mailbox} for {lease:g} s, {wait:g} s")
        found: Sequence[Delivery] = await self._inner.receive(**asked)
        return found

    async def settle(self, settlements: Sequence[Any]) -> Sequence[bool]:
        answer: Sequence[bool] = await self._inner.settle(settlements)
        word = "acknowledged" if isinstance(settlements[0], Acked) else "handed back"
        self._notes.append(f"{word} in {self._inner.mailbox}")
        return answer
