"""Searches for letters that died in outages."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from deadletter.core.brake import BrakeKind, BrakeWindow
from deadletter.core.errors import QueryError
from deadletter.core.query import names_outages, parse, same, show, with_outages
from deadletter.core.query.resolve import MOST_OUTAGES

NOON: Final = datetime(2026, 11, 19, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


def window(number: int, *, mailbox: str = "orders", hours: float = 0.5) -> BrakeWindow:
    """Return a window that opened `number` hours after noon."""
    at = NOON + number * HOUR
    end = at + hours * HOUR
    return BrakeWindow(
        id=f"w-{number:06}",
        mailbox=mailbox,
        kind=BrakeKind.OUTAGE,
        cause="TimeoutError",
        version="1.8",
        text="the bank is down",
        opened_at=at,
        seen_at=end,
        closed_at=end,
    )


def replaced(query: str, *windows: BrakeWindow, now: datetime = NOON + 24 * HOUR) -> str:
    return show(with_outages(parse(query), windows, now))


def test_an_outage_is_a_mailbox_and_a_span() -> None:
    assert replaced("during:w-000001", window(1)) == (
        "source:orders (dead:>=2026-11-19T13:00:00.000000Z dead:<2026-11-19T13:30:00.000000Z)"
    )


def test_the_span_of_an_open_outage_has_no_end() -> None:
    still = replace(window(1), closed_at=None, seen_at=NOON + 2 * HOUR)

    assert replaced("during:any", still, now=NOON + 2 * HOUR) == (
        "source:orders dead:>=2026-11-19T13:00:00.000000Z"
    )
    # Its worker has been silent for long: it ended with the latest news.
    assert "dead:<2026-11-19T14:00:00" in replaced("during:any", still)


def test_windows_of_several_workers_are_one_outage() -> None:
    both = window(1), replace(window(1), id="w-000009", opened_at=NOON + 1.2 * HOUR)

    assert replaced("during:w-000001", *both) == replaced("during:any", *both)
    assert replaced("during:w-000009", *both).count("dead:>=") == 1


def test_outages_of_several_mailboxes_are_told_apart() -> None:
    found = replaced("is:open during:any", window(1), window(5), window(3, mailbox="mails"))

    assert found.count("source:") == 2
    assert found.count("dead:>=") == 3


def test_without_outages_nothing_matches() -> None:
    assert replaced("during:outage") == "!*"
    assert replaced("during:systemic", window(1)) == "!*"


def test_other_searches_stay_as_they_are() -> None:
    node = parse("is:open (source:orders OR !error:X) word")

    assert not names_outages(node)
    assert names_outages(parse("is:open !(a OR during:any)"))
    assert same(with_outages(node, [window(1)], NOON), node)


def test_unknown_outages_are_refused_with_advice() -> None:
    with pytest.raises(QueryError, match="dlq outages --json"):
        replaced("during:w-000007", window(1))
    with pytest.raises(QueryError, match="use one of: any, outage, systemic"):
        parse("during:soon")
    with pytest.raises(QueryError, match="takes no"):
        parse("during:w-0000*")


def test_too_many_outages_are_refused() -> None:
    many = [window(number) for number in range(MOST_OUTAGES + 1)]

    assert replaced("during:any", *many[1:])
    with pytest.raises(QueryError, match="200 is the limit"):
        replaced("during:any", *many)
