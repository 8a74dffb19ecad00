"""An office with deaths, an outage and acts, and visits of its pages with any role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from pathlib import Path
from re import DOTALL, sub
from typing import Any

from httpx import Response
from litestar import Litestar
from litestar.testing import AsyncTestClient

from deadletter.core.access import Role
from deadletter.core.brake import BrakeKind, BrakeWindow
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from deadletter.testing.letters_bench import a_letter
from deadletter.wiring.engines import open_engine
from server.conftest import context_of, token

KEY_ERROR = "f-vat-rate"
TIMEOUT = "f-bank"


@dataclass(eq=False)
class Office:
    """A server with an office of its own, at the real time."""

    context: ServerContext
    client: AsyncTestClient[Litestar]

    async def get(
        self, path: str, role: Role | None = None, *sources: str, part: bool = False, tag: str = ""
    ) -> Response:
        """Open a page or a part, with a role where access is on."""
        headers = {"accept": "text/html"} | ({"hx-request": "true"} if part else {})
        headers |= {"hx-ptag": tag} if tag else {}
        if role is not None:
            name = f"{role}-{'-'.join(sources)}"
            shown = await token(self.context, role, *sources, name=name)
            headers["authorization"] = f"Bearer {shown}"
        return await self.client.get(path, headers=headers)

    async def text(self, path: str, role: Role | None = None, *sources: str) -> str:
        """Return the text of a page, which has to be there."""
        answer = await self.get(path, role, *sources)
        assert answer.status_code == 200, answer.text
        return text_of(answer)


@asynccontextmanager
async def opened(
    path: Path, *, guarded: bool = False, url: str = "", **changes: Any
) -> AsyncIterator[Office]:
    """Open a server; by default on a file, with access off."""
    engine = await open_engine(url or f"sqlite:///{path}/office.db")
    settings = Settings(**changes)
    context = context_of(engine, settings=settings, guarded=guarded)
    host = "dlq.example" if guarded else "127.0.0.1"
    async with AsyncTestClient(build(context), base_url=f"http://{host}") as client:
        yield Office(context, client)
    await engine.close()


async def fill(context: ServerContext) -> None:
    """File deaths of three groups in two mailboxes, and an outage of one of them."""
    now = context.clock.now()
    letters: list[Any] = []
    for number in range(6):
        at = now - timedelta(minutes=20 + number)
        letters.append(
            a_letter(
                at=at,
                message_id=f"o-{number}",
                source="orders",
                fingerprint=KEY_ERROR if number < 4 else TIMEOUT,
                error_type="builtins.KeyError" if number < 4 else "TimeoutError",
                error_text="'vat_rate'" if number < 4 else "<b>the bank</b> \u202edid not answer",
                version="1.8.0",
            )
        )
    letters.append(a_letter(at=now, message_id="m-1", source="mails", fingerprint="f-mails"))
    await context.store.keep(letters)
    await context.store.save_window(
        BrakeWindow(
            id="0192ab00-0000-7000-8000-000000000000",
            mailbox="orders",
            kind=BrakeKind.OUTAGE,
            cause="TimeoutError",
            version="1.8.0",
            text="10 of the last 10 attempts failed transiently",
            opened_at=now - timedelta(minutes=23),
            seen_at=now,
            held=7,
        )
    )


def text_of(response: Response) -> str:
    """Return the text of a page as a person reads it: white space is one blank."""
    without = sub(r"<(script|template|title)\b.*?</\1>", " ", response.text, flags=DOTALL)
    return " ".join(unescape(sub(r"<[^>]+>", " ", without)).split())
