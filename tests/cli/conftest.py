import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deadletter.cli.app import run
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.wiring.engines import opened
from office.making import NOW

_OFFICE = "Office: "


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a run of `dlq`."""

    code: int
    out: str
    err: str  # without the line that names the office
    office: str = field(default="", compare=False)

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """The command `dlq`, with an office of its own."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = run(words)
        out, err = self._capsys.readouterr()
        lines = err.splitlines(keepends=True)
        named = [one for one in lines if one.startswith(_OFFICE)]
        assert len(named) <= 1, named
        rest = "".join(one for one in lines if one not in named)
        return Ran(code, out, rest, "".join(named).removeprefix(_OFFICE).rstrip())

    def keep(self, *letters: DeadLetter) -> None:
        """Put letters into the office."""
        self.do(lambda engine: engine.letters.keep(letters))

    def send(self, mailbox: str, *ids: str) -> None:
        """Put messages into a mailbox."""
        messages = [Message(id=one, body=b"{}", sent_at=NOW) for one in ids]
        self.do(lambda engine: engine.broker.sink(mailbox).send(messages))

    def do(self, what: Callable[[Any], Any]) -> Any:
        """Call a function with the open engine."""

        async def doing() -> Any:
            async with opened(self.url) as engine:
                return await what(engine)

        return asyncio.run(doing())


@pytest.fixture
def dlq(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    url = f"sqlite:///{tmp_path}/office.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLQ_URL", url)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("DLQ_DEBUG", raising=False)
    return Command(url, capsys)


class RemoteCommand:
    """The command `dlq` with `--server`."""

    def __init__(self, dlq: Command, url: str) -> None:
        self._dlq = dlq
        self._url = url

    def __call__(self, *words: str) -> Ran:
        return self._dlq("--server", self._url, *words)

    def unnamed(self, *words: str) -> Ran:
        """Run `dlq` with the server in DLQ_SERVER instead."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DLQ_SERVER", self._url)
            return self._dlq(*words)


@pytest.fixture
def server(dlq: Command) -> Iterator[Any]:
    """Start a server with the same office as `dlq`."""
    from client.serving import served  # which takes a while, and few need it

    dlq.send("orders", "m-a", "m-b")
    with served(dlq.url) as server:
        yield server


@pytest.fixture
def remote(dlq: Command, server: Any) -> RemoteCommand:
    return RemoteCommand(dlq, server.url)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that simulates a terminal and one answer to every question."""

    def sits(answer: str) -> None:
        for stream in ("stdin", "stderr"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda: answer)

    return sits
