"""
A furnished office: what a shop looks like after two busy days.

An outage, a bug of one version, decisions of several people, replays in every state, lent
items, workers. It needs workers and half a minute; tests that only read have `offices.busy`.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import httpx

from browser.offices import died, fill
from browser.places import Place
from browser.processes import Serve
from deadletter.core.letter import DeadLetter

_CARE: Final = {"canary": 10, "ramp": True, "halt_on": 0.1}
_LIMITS: Final = {"lease_timeout": "1h", "expire_timeout": "24h"}
_TIMEOUT: Final = ("builtins.TimeoutError", "the bank did not answer for order {}", "TIMEOUT")
RATE: Final = ("builtins.KeyError", "'vat_rate'", "KEY_ERROR")
_SMALL: Final = (
    ("mails", ("smtplib.SMTPRecipientsRefused", "mailbox of {} is full", "RECIPIENT"), "mail"),
    ("shipments", ("builtins.LookupError", "no carrier for Zermatt", "LOOKUP"), "ship"),
    ("payments", ("shop.errors.CardDeclined", "card of {} was declined", "CARD"), "charge"),
    ("invoices", ("httpx.ReadTimeout", "the read operation timed out", "READ"), "bill"),
    ("payments", ("shop.errors.Duplicate", "{} was paid before", "DUPLICATE"), "book"),
    ("shipments", ("shop.errors.OutOfStock", "article A-1001 is out of stock", "STOCK"), "pick"),
)


def furnished_letters(now: datetime) -> Iterator[DeadLetter]:
    """Letters of two days: an outage of the bank, a bug of 1.8.0, and what always fails."""
    dice = Random(11)
    hour = timedelta(hours=1)
    for number in range(1, 31):  # the first four of them fail in another way when replayed
        at = now - 30 * hour + timedelta(seconds=40 * number)
        yield died(number, at, error=_TIMEOUT, frame="shop.bank:book", version="1.7.2")
    for number in range(31, 451):  # the outage: rises, holds, falls
        at = now - 5 * hour + hour * min(max(dice.gauss(0.7, 0.28), 0), 1.6)
        yield died(number, at, error=_TIMEOUT, frame="shop.bank:pay", version="1.8.0")
    for number in range(451, 611):
        at = now - 20 * hour * dice.random() ** 1.3 - timedelta(minutes=25)
        yield died(number, at, error=RATE, frame="shop.tax:rate_of", version="1.8.0")
    for number in range(611, 911):
        source, error, step = _SMALL[min(int(dice.expovariate(0.7)), len(_SMALL) - 1)]
        at = now - 46 * hour * dice.random() - timedelta(minutes=2)
        version = "1.7.2" if now - at > 20 * hour else "1.8.0"
        yield died(
            number, at, source=source, error=error, frame=f"shop.{source}:{step}", version=version
        )


async def furnish(place: Place) -> Serve:
    """Fill a place, serve it, and let people, workers and replays do what they do."""
    letters = sorted(furnished_letters(datetime.now(UTC)), key=_age)
    await fill(f"sqlite:///{place.folder}/shop.db", letters)
    server = place.serve()
    oncall = await place.token("operator", name="oncall")
    backend = await place.token("operator", name="backend")
    await place.token("reader", "mails", name="ci")
    async with (
        place.api() as admin,
        server.client(oncall) as first,
        server.client(backend) as other,
    ):
        await _ok(admin.post("/queues", json={"name": "orders-dlq"}))
        await _ok(admin.post("/queues", json={"name": "orders", "dead_queue": "orders-dlq"}))
        await _decide(first, other)
        await _lend(admin)
        worker = place.work("1.8.1", SHOP_BUG="iban")
        await _replay(first, "error:TimeoutError age:>24h", "the bank is back")
        worker.end()
        for _ in range(2):
            place.work("1.8.1")
        bank = "error:TimeoutError is:pending"
        await _replay(first, f"{bank} age:<24h age:>260m", "the bank is back", ended="done")
        await _replay(other, "text:vat_rate", "1.8.1 knows the rates", start=False)
        await _replay(other, f"{bank} age:<260m", "the rest of the outage", rate=2, ended="")
    return server


async def _decide(first: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    groups = (await _ok(first.get("/groups", params={"limit": 20})))["groups"]
    by_error = {one["error_type"].rpartition(".")[2]: one["fingerprint"] for one in groups}
    later = (datetime.now(UTC) + timedelta(hours=9)).isoformat()
    for person, error, wish in (
        (first, "KeyError", {"status": "ongoing", "owner": "backend", "reason": "rates of 2027"}),
        (other, "OutOfStock", {"status": "snoozed", "until": later, "reason": "comes on Monday"}),
        (other, "CardDeclined", {"status": "muted", "reason": "customers do that"}),
        (first, "Duplicate", {"status": "resolved", "version": "1.8.1", "reason": "keys are kept"}),
    ):
        await _ok(person.put(f"/groups/{by_error[error]}/standing", json=wish))
    for person, source, verb, reason in (
        (other, "mails", "review", "asked the customers"),
        (first, "invoices", "close", "billed by hand"),
        (other, "payments", "discard", "paid in the shop"),
    ):
        asked = {"query": f"source:{source} is:pending", "limit": "8"}
        ids = [head["id"] for head in (await _ok(first.get("/letters", params=asked)))["heads"]]
        await _ok(person.post(f"/letters/{verb}", json={"ids": ids, "reason": reason}))
        await _ok(person.post("/letters/notes", json={"ids": ids[:2], "text": "see ticket 4711"}))


async def _replay(
    api: httpx.AsyncClient,
    query: str,
    reason: str,
    *,
    rate: float | None = None,
    start: bool = True,
    ended: str = "halted",
) -> None:
    wish: dict[str, Any] = {"query": query, "reason": reason, "care": _CARE}
    if rate is not None:
        wish |= {"rate": rate, "care": {}}
    plan = await _ok(api.post("/replays/plan", json=wish))
    name = plan.get("replay", plan)["id"]
    if not start:
        return
    await _ok(api.post(f"/replays/{name}/start", json={}))
    for _ in range(600 if ended else 0):
        if (await _ok(api.get(f"/replays/{name}")))["state"] in {ended, "paused", "done"}:
            return
        await asyncio.sleep(0.1)


async def _lend(api: httpx.AsyncClient) -> None:
    base = str(api.base_url).partition("/api/")[0] + "/v1"
    items = [{"utf8": f'{{"job": {number}, "picture": "p-{number}.jpg"}}'} for number in range(12)]
    for call, wish in (
        ("queues.create", {"queue_name": "jobs-dead", **_LIMITS}),
        ("queues.create", {"queue_name": "jobs", "dead_queue": "jobs-dead", **_LIMITS}),
        ("queue.produce", {"queue_name": "jobs", "request_timeout": "5s", "items": items}),
    ):
        await _ok(api.post(f"{base}/{call}", json=wish))
    lease = {
        "queue_name": "jobs",
        "client_id": "worker-1",
        "batch_size": 4,
        "request_timeout": "5s",
    }
    leased = await _ok(api.post(f"{base}/queue.lease", json=lease))
    dead = [{"id": one["id"], "dead": True} for one in leased["items"][:2]]
    place = {"queue_name": "jobs", "partition": leased.get("partition", 0)}
    await _ok(api.post(f"{base}/queue.retry", json={**place, "items": dead}))


async def _ok(asking: Any) -> Any:
    answer = await asking
    assert answer.status_code < 300, f"{answer.url}: {answer.text}"
    return answer.json() if answer.content else None


def _age(letter: DeadLetter) -> datetime:
    return letter.head.dead_at
