"""
A mailbox as a user would write it: a list, and the members that the protocol names.

It has nothing of this project. `calls` are what it was asked to do, in order.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Condition
from typing import Any
from uuid import uuid4


class OwnMailbox:
    """Messages in the memory of this process."""

    def __init__(self, name: str, calls: list[str] | None = None) -> None:
        self.name = name
        self.calls = [] if calls is None else calls
        self.visibility: list[int] = []
        self._entries: list[_Entry] = []
        self._changed = Condition()

    def send(self, body: Any, *, reply_to: Any = None) -> str:
        entry = _Entry(body, reply_to)
        with self._changed:
            self._entries.append(entry)
            self.calls.append(f"send to {self.name}")
            self._changed.notify_all()
        return entry.id

    def receive(
        self, *, max_messages: int = 1, visibility_timeout: int = 30, wait_time_seconds: int = 0
    ) -> Sequence["OwnMessage"]:
        deadline = time.monotonic() + wait_time_seconds
        with self._changed:
            self.visibility.append(visibility_timeout)
            while not (found := self._visible()[:max_messages]):
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(min(left, 0.05))
            for entry in found:
                entry.visible_at = time.monotonic() + visibility_timeout
                entry.deliveries += 1
            return [OwnMessage(self, entry) for entry in found]

    def approximate_count(self) -> int:
        return len(self._entries)

    def delete(self, entry: "_Entry") -> None:
        with self._changed:
            self._entries.remove(entry)
            self.calls.append(f"acknowledge in {self.name}")

    def put_back(self, entry: "_Entry", delay: int) -> None:
        with self._changed:
            entry.visible_at = time.monotonic() + delay
            self.calls.append(f"nack in {self.name} for {delay}")
            self._changed.notify_all()

    def pass_time(self) -> None:
        """Make everything visible, as if its time had come."""
        with self._changed:
            for entry in self._entries:
                entry.visible_at = 0.0
            self._changed.notify_all()

    def _visible(self) -> list["_Entry"]:
        now = time.monotonic()
        return [entry for entry in self._entries if entry.visible_at <= now]


@dataclass(eq=False)
class _Entry:
    body: Any
    reply_to: Any
    id: str = field(default_factory=lambda: uuid4().hex)
    sent_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    visible_at: float = 0.0
    deliveries: int = 0


class OwnMessage:
    """One delivery; it cannot extend its visibility."""

    def __init__(self, box: OwnMailbox, entry: _Entry) -> None:
        self._box = box
        self._entry = entry
        self.id = entry.id
        self.body = entry.body
        self.reply_to = entry.reply_to
        self.enqueued_at = entry.sent_at
        self.delivery_count = entry.deliveries

    def reply(self, body: Any) -> str:
        answer: str = self.reply_to.send(body)
        return answer

    def acknowledge(self) -> None:
        self._box.delete(self._entry)

    def nack(self, *, visibility_timeout: int = 0) -> None:
        self._box.put_back(self._entry, visibility_timeout)
