"""Letters for tests of the pages about one letter."""

import re
from datetime import datetime
from typing import Any

from deadletter.core.letter import DeadLetter
from deadletter.server.context import ServerContext
from html_pages import Element, Form, Page
from office.making import make_letter

BODY = b'{"id": "o-17", "amount": "500", "password": "hunter2"}'
HEADERS = {"tenant": "eu", "authorization": "Bearer abcdefghijklmnopqrstuvwxyz"}
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def order(now: datetime, **different: object) -> DeadLetter:
    """An order with secrets in its body and headers."""
    fields: dict[str, object] = {"body": BODY, "headers": HEADERS, "now": now, "key": "c-7"}
    return make_letter(17, **{**fields, **different})  # type: ignore[arg-type]


async def kept(context: ServerContext, **different: object) -> DeadLetter:
    """Keep an order and return it."""
    letter = order(context.clock.now(), **different)
    await context.store.keep([letter])
    return letter


def sent(form: Form, **changed: str) -> dict[str, Any]:
    """Return the fields of a form with some of them changed."""
    return {**form.values, **changed}


def section(page: Page, name: str) -> Element:
    """Return a part of the page of a letter, by its id."""
    return page.find(id=name)


async def actions(context: ServerContext, letter: DeadLetter) -> list[str]:
    """Return what the audit says was done with a letter, first to last."""
    return [entry.action for entry in await context.store.audit(target=letter.id)]
