"""
Offices to look at: empty, with one letter, with many, and with hostile ones.

Letters are made as burials make them, so groups, fingerprints and counts are real. What
people and programs did is done over the API of a running server.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import httpx
import msgspec

from browser.payloads import BODIES, HOSTILE, SCRIPTS, large_body
from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message, as_headers
from deadletter.wiring.engines import open_engine

STATES: Final = ("empty", "one", "many", "hostile")
_STACK: Final = """\
  File "/app/shop/worker.py", line 41, in run
    await handler(message)
  File "/app/shop/charge.py", line 112, in charge
    await bank.pay(order)
  File "/usr/lib/python3/site-packages/httpx/_client.py", line 1617, in send
    response = await self._send_handling_auth(request)
"""
_ERRORS: Final = (
    ("builtins.TimeoutError", "the bank did not answer for order {} after 30 s", "TIMEOUT"),
    ("builtins.KeyError", "'vat_rate'", "KEY_ERROR"),
    ("shop.errors.CardDeclined", "card of order {} was declined: do not honor", "CARD_DECLINED"),
    ("shop.errors.OutOfStock", "article A-{} is out of stock", "OUT_OF_STOCK"),
    ("httpx.ReadTimeout", "the read operation timed out", "READ_TIMEOUT"),
    ("sqlalchemy.exc.OperationalError", "server closed the connection", "OPERATIONAL"),
)
_SOURCES: Final = ("orders", "payments", "mails", "shipments", "invoices")
_VERSIONS: Final = ("1.7.2", "1.7.2", "1.8.0", "1.8.0", "1.8.0", "1.8.1")


def died(
    number: int,
    at: datetime,
    *,
    source: str = "orders",
    error: tuple[str, str, str] = _ERRORS[0],
    frame: str = "shop.charge:charge",
    version: str = "1.8.0",
    body: bytes | None = None,
    content_type: str = "application/json",
    headers: dict[str, Any] | None = None,
    key: str = "",
    id: str = "",
    stack: str = _STACK,
    consumer: str = "shop.charge",
    attempts: int = 3,
) -> DeadLetter:
    """Return one dead letter, as the burial of a message makes it."""
    name, text, code = error
    failure = Failure(
        trouble=Trouble.TRANSIENT if "Timeout" in name else Trouble.UNKNOWN,
        code=code,
        error_type=name,
        text=text.replace("{}", f"o-{number}"),
        stack=stack,
        frame=frame,
    )
    history = ""
    for attempt in range(1, attempts + 1):
        began = at - timedelta(seconds=4 ** (attempts - attempt))
        history = append(history, attempt_of(failure, number=attempt, at=began, seconds=0.312))
    contents = body if body is not None else _body(number)
    message = Message(
        id=id or f"o-{number}",
        body=contents,
        sent_at=at - timedelta(minutes=2),
        headers=as_headers(headers or {"tenant": "eu", "authorization": "Bearer s3cret"}),
        content_type=content_type,
        key=key or f"c-{number % 37}",
    )
    return burial(
        Delivery(message=message, mailbox=source, attempt=attempts),
        failure,
        Bury(Reason.ATTEMPTS_EXHAUSTED, f"failed {attempts} of {attempts} attempts"),
        history=history,
        now=at,
        consumer=consumer,
        version=version,
    )


def one_letter(now: datetime) -> list[DeadLetter]:
    """The only letter of an office."""
    return [died(17, now - timedelta(minutes=3))]


def many_letters(now: datetime, count: int = 900) -> list[DeadLetter]:
    """Letters of two days in about forty groups, of which a few are large."""
    dice = Random(7)
    return [_one_of_many(number, now, count, dice) for number in range(1, count + 1)]


def hostile_letters(now: datetime) -> Iterator[DeadLetter]:
    """Letters of which every field holds a hostile text."""
    size = len(HOSTILE)
    for number, text in enumerate(HOSTILE):
        other = [HOSTILE[(number + step) % size] for step in range(1, 9)]
        yield died(
            number,
            now - timedelta(minutes=5 + number),
            source="orders" if number % 3 else _name(other[0], "mailbox"),
            error=(_name(other[1], "error"), text, _name(other[2], "CODE")),
            frame=_plain(other[3])[:150],
            version=_plain(other[4])[:60],
            body=msgspec.json.encode({"note": _plain(text), _plain(other[5])[:80]: [1, None, text]})
            if _is_text(text)
            else text.encode("utf-8", "surrogatepass"),
            headers={"x-note": _plain(other[6]), "token": "hunter2", _header(other[1]): "value"},
            key=_plain(other[5])[:80],
            id=f"m-{number} {_plain(other[7])[:60]}",
            stack=f'  File "{_plain(other[0])}", line 1, in {_plain(other[1])}\n    {text}\n',
            consumer=_plain(other[2])[:60],
        )
    for number, (body, content_type) in enumerate((*BODIES, (large_body(), "application/json"))):
        yield died(
            1_000 + number,
            now - timedelta(minutes=2 + number),
            body=body,
            content_type=content_type,
            error=("shop.errors.Unreadable", "the body is odd", "UNREADABLE"),
        )


def letters_of(state: str, now: datetime) -> list[DeadLetter]:
    """Return the letters of an office in one of the states."""
    if state == "one":
        return one_letter(now)
    if state == "many":
        return many_letters(now)
    return list(hostile_letters(now)) if state == "hostile" else []


async def fill(url: str, letters: Sequence[DeadLetter]) -> None:
    """Put letters into an office, as workers would."""
    engine = await open_engine(url)
    try:
        assert engine.letters is not None
        for first in range(0, len(letters), 100):
            await engine.letters.keep(letters[first : first + 100])
        for name in sorted({letter.head.source for letter in letters}):
            if name in _SOURCES:
                await engine.broker.sink(name).send([])
    finally:
        await engine.close()


async def busy(api: httpx.AsyncClient, *, words: Sequence[str] = ()) -> None:
    """Do what people do all day: decide, plan, note, lend. `words` are used as their texts."""
    said = list(words) or ["the bank was down", "unknown customers are made", "asked the bank"]

    def word(number: int) -> str:
        return said[number % len(said)]

    listed = await _ok(api.get("/groups", params={"limit": 12}))
    groups = [group["fingerprint"] for group in listed["groups"]]
    await _post(api, "/queues", {"name": "orders-dlq"})
    await _post(
        api, "/queues", {"name": "orders", "dead_queue": "orders-dlq", "reference": word(0)}
    )
    for number, name in enumerate(groups[1:7]):
        await _standing(api, name, number, word)
    letters = (await _ok(api.get("/letters", params={"query": "is:pending", "limit": 60})))["heads"]
    ids = [letter["id"] for letter in letters]
    if len(ids) > 30:
        await _post(api, "/letters/review", {"ids": ids[:8], "reason": word(0)})
        await _post(api, "/letters/notes", {"ids": ids[3:5], "text": word(1)})
        await _post(api, "/letters/discard", {"ids": ids[9:13], "reason": word(2)})
        await _post(api, "/letters/close", {"ids": ids[14:17], "reason": word(3)})
        await _edit(api, ids[20], word(4))
        for query, start in (("is:pending", True), (f"group:{groups[0]}", False)):
            await _replay(api, query, word(5), start=start)
    await _post(api, "/tokens", {"name": "ci", "role": "reader", "sources": ["mails"]})


async def _standing(api: httpx.AsyncClient, name: str, number: int, word: Any) -> None:
    later = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    wish: dict[str, Any] = {"owner": word(number)[:200], "reason": word(number + 1)}
    wish |= (
        {"status": "ongoing"},
        {"status": "snoozed", "until": later},
        {"status": "muted"},
        {"status": "resolved", "version": "1.9"},
        {"status": "resolved", "version": "1.8"},
    )[number % 5]
    answer = await api.put(f"/groups/{name}/standing", json=wish)
    assert answer.status_code < 300, answer.text


async def _edit(api: httpx.AsyncClient, id: str, text: str) -> None:
    seen = await api.get(f"/letters/{id}")
    answer = await api.patch(
        f"/letters/{id}",
        json={"json": {"id": "o-17", "amount": 500, "note": text}, "reason": text},
        headers={"if-match": seen.headers["etag"]},
    )
    assert answer.status_code < 300, answer.text


async def _replay(api: httpx.AsyncClient, query: str, reason: str, *, start: bool) -> None:
    wish = {"query": query, "reason": reason, "care": {"canary": 10, "ramp": True, "halt_on": 0.1}}
    answer = await api.post("/replays/plan", json=wish)
    assert answer.status_code < 300, answer.text
    if answer.status_code == 201 and start:
        plan = answer.json()
        replay = plan.get("replay", plan)["id"]
        await _post(api, f"/replays/{replay}/start", {"expect": plan.get("sendable")})


async def _post(api: httpx.AsyncClient, path: str, wish: dict[str, Any]) -> None:
    answer = await api.post(path, json=wish)
    assert answer.status_code < 300, f"{path}: {answer.text}"


async def _ok(answering: Any) -> Any:
    answer = await answering
    assert answer.status_code == 200, answer.text
    return answer.json()


def _one_of_many(number: int, now: datetime, count: int, dice: Random) -> DeadLetter:
    age = timedelta(hours=46) * (1 - number / count) ** 1.4 + timedelta(seconds=12)
    source = _SOURCES[min(int(dice.expovariate(0.9)), len(_SOURCES) - 1)]
    error = _ERRORS[min(int(dice.expovariate(0.9)), len(_ERRORS) - 1)]
    step = int(dice.random() ** 9 * 4)
    return died(
        number,
        now - age,
        source=source,
        error=error,
        frame=f"shop.{source}:step_{step}" if step else f"shop.{source}:charge",
        version=_VERSIONS[min(number * len(_VERSIONS) // count, len(_VERSIONS) - 1)],
    )


def _body(number: int) -> bytes:
    return msgspec.json.encode(
        {
            "id": f"o-{number}",
            "amount": 5 + number * 37 % 900,
            "country": "CH" if number % 8 else "NO",
            "card": "4111 1111 1111 1111",
            "customer": {"email": f"customer{number}@example.org", "since": 2014},
            "lines": [{"article": "A-1001", "count": 2, "cents": 1999}] * (number % 3),
        }
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _name(text: str, before: str) -> str:
    """Return a name that is hostile as far as names may be."""
    return f"{before}.{_plain(text)[:60]}"


def _header(text: str) -> str:
    return "x-" + "".join(c for c in _plain(text)[:40] if c.isascii() and c.isprintable())


HOSTILE_WORDS: Final = SCRIPTS
"""What people may write into reasons, notes and owners."""
