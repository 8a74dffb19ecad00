"""A million dead letters as they might be: some problems large, most small."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from workload import ATTEMPTS, body

SOURCES = ("orders", "payments", "invoices", "mails", "stock", "returns", "search")
ERRORS = (
    "builtins.TimeoutError",
    "builtins.ConnectionError",
    "builtins.KeyError",
    "shop.errors.CardDeclined",
    "shop.errors.OutOfStock",
    "shop.errors.AddressUnknown",
    "httpx.ReadTimeout",
    "sqlalchemy.exc.OperationalError",
)
PLACES = 20  # in the application, where each error may come from
DAYS = 30
KEYS = 50_000
VERSIONS = ("1.6", "1.7", "1.8")
_STACK = "\n".join(
    f'  File "/app/shop/{name}.py", line {line}, in {name}'
    for name, line in (("worker", 41), ("charge", 112), ("bank", 77), ("http", 203))
)


def letters(n: int, *, seed: int = 1, groups: int | None = None) -> Iterator[DeadLetter]:
    """
    Letters in the order of their deaths, spread over a month until now.

    They have about as many causes as there are `groups`, some large and most small;
    without it, there are a few hundred.
    """
    dice = random.Random(seed)
    now = datetime.now(UTC)
    step = timedelta(days=DAYS) / max(n, 1)
    for number in range(n):
        yield _letter(number, now - step * (n - number), dice, groups)


def _letter(number: int, died: datetime, dice: random.Random, groups: int | None) -> DeadLetter:
    if groups is None:
        source = SOURCES[min(int(dice.expovariate(0.7)), len(SOURCES) - 1)]
        error = ERRORS[min(int(dice.expovariate(0.5)), len(ERRORS) - 1)]
        place = int(dice.random() ** 2 * PLACES)
    else:
        place = number if number < groups else int(dice.random() ** 4 * groups)
        source, error = SOURCES[place % len(SOURCES)], ERRORS[place % len(ERRORS)]
    failure = Failure(
        trouble=Trouble.TRANSIENT if "Time" in error else Trouble.UNKNOWN,
        code=error.rpartition(".")[2].upper(),
        error_type=error,
        text=f"order {number} could not be booked with the bank",
        stack=_STACK,
        frame=f"shop.charge:step_{_word(place)}",
    )
    history = ""
    for attempt in range(1, ATTEMPTS + 1):
        at = died - timedelta(seconds=ATTEMPTS - attempt)
        told = attempt_of(failure, number=attempt, at=at, seconds=0.012)
        history = append(history, told)
    message = Message(
        id=f"m-{number:09d}",
        body=msgspec.json.encode(body(number)),
        sent_at=died - timedelta(seconds=5),
        content_type="application/json",
        key=f"customer-{dice.randrange(KEYS)}",
    )
    return burial(
        Delivery(message=message, mailbox=source, attempt=ATTEMPTS),
        failure,
        Bury(Reason.ATTEMPTS_EXHAUSTED, f"failed {ATTEMPTS} of {ATTEMPTS} attempts"),
        history=history,
        now=died,
        consumer="shop.charge",
        version=dice.choice(VERSIONS),
    )


def _word(number: int) -> str:
    """Return a name for a number: causes that differ only in a number are one group."""
    letters = ""
    while number or not letters:
        number, digit = divmod(number, 26)
        letters += chr(ord("a") + digit)
    return letters
