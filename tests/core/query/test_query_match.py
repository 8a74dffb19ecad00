"""Letters judged by searches."""

from datetime import UTC, datetime, timedelta
from typing import Any as Anything

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.generate import NOW, letters, queries, terms
from deadletter.core.failure import Reason, Trouble
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query import (
    FIELDS,
    All,
    Any,
    Node,
    Not,
    Term,
    matcher,
    matches,
    needs_contents,
    parse,
    resolve,
    same,
    show,
    split,
    term_matches_head,
)

LETTER = DeadLetter(
    head=LetterHead(
        id="abcdef",
        source="orders",
        message_id="m-1",
        partition="3",
        key="Customer 7",
        business_key="order-42",
        state=State.PENDING,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        trouble=Trouble.TRANSIENT,
        code="HTTP_503",
        error_type="shop.errors.UpstreamDown",
        error_text="Connection refused by 10.0.0.7",
        fingerprint="1a2b3c",
        attempts=5,
        first_failed_at=NOW - timedelta(days=2),
        dead_at=NOW - timedelta(hours=24),
        consumer="charge",
        version="1.8.0",
        trace_id="4bf92f35",
        replays=1,
        size=1000,
    ),
    message=Message(
        id="m-1",
        body=b'{"order": {"id": 42, "items": [{"sku": "A-1"}]}, "note": "Urgent"}',
        sent_at=NOW - timedelta(days=3),
        headers=(("tenant", b"eu"), ("tenant", b"us"), ("odd", b"\xff")),
        key="Customer 7",
        reply_to="replies",
        expires_at=NOW,
        idempotency_key="order-42",
    ),
)
BARE = DeadLetter(
    head=LetterHead(
        id="bare",
        source="payments",
        message_id="m-2",
        state=State.CLOSED,
        first_failed_at=NOW,
        dead_at=NOW,
        conflict=True,
    ),
    message=Message(id="m-2", body=b"", sent_at=NOW),
)


def finds(text: str, letter: DeadLetter = LETTER, now: datetime = NOW) -> bool:
    return matches(parse(text), letter, now=now)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "is:pending",
        "is:unreviewed",
        "is:open",
        "is:[closed,pending]",
        "has:trace has:key has:idempotency_key has:replays",
        "has:reply_to has:expires has:headers has:body",
        "has:[key,body]",
        "id:abcdef",
        "id:abc*",
        "source:orders",
        "source:[payments,ord*]",
        "partition:3",
        "message:m-*",
        'key:"Customer 7"',
        "key:*7",
        "business_key:order-42",
        "reason:attempts-exhausted",
        "trouble:[loop,transient]",
        "category:retryable",
        "code:http_503",
        "error:upstreamdown",
        "error:shop.errors.UpstreamDown",
        "error:Upstream*",
        "error:shop.*",
        'text:"CONNECTION refused"',
        "text:conn*10.0",
        "group:1a2b3c",
        "attempts:5",
        "attempts:>4",
        "attempts:>=5",
        "attempts:<6",
        "attempts:<=5",
        "attempts:[1,5]",
        "replays:1",
        "version:1.8.*",
        "consumer:charge",
        "trace:4bf92f35",
        "size:>999",
        "age:>=24h",
        "age:<=24h",
        "age:>23h",
        "age:<25h",
        "since:1d",
        "until:1d",
        "since:2026-10-31",
        "until:2026-10-31",
        "dead:2026-10-31",
        "dead:2026-10-31T12:00",
        "dead:2026-10-31T14:00:00+02:00",
        "dead:>2026-10-30",
        "dead:<2026-11-01",
        "first:<=2026-10-30",
        "header.tenant:eu",
        "header.Tenant:us",
        "header.tenant:e*",
        "body.order.id:42",
        "body.order.items.0.sku:A-1",
        "refused",
        "REFUSED urgent",
        '"connection refused"',
        "con*10.0.0",
        r'"\"sku\": \"a-1\""',
        "!is:closed",
        "nowhere OR refused",
        "!(nowhere OR is:closed)",
    ],
)
def test_a_search_that_finds_the_letter(text: str) -> None:
    assert finds(text)


@pytest.mark.parametrize(
    "text",
    [
        "!*",
        "is:conflict",
        "is:reviewed",
        "id:abcde",
        "id:ABC*",
        "source:Orders",
        "key:*8",
        "category:non_retryable",
        "reason:expired",
        "error:errors",
        "error:Upstream",
        "error:errors.UpstreamDown",
        "text:conn*11.0",
        "attempts:>5",
        "attempts:<5",
        "size:<1000",
        "age:>24h",
        "age:<24h",
        "since:23h",
        "until:25h",
        "since:2026-11-01",
        "until:2026-10-30",
        "dead:>2026-10-31",
        "dead:<2026-10-31",
        "dead:2026-10-30",
        "dead:2026-10-31T12:01",
        "dead:2026-10-31T11:59",
        "dead:2026-10-31T11:59:59",
        "dead:2026-10-31T11:59:59.999999Z",
        "first:>2026-10-30",
        "header.tenant:EU",
        "header.none:*",
        "body.order.items.1.sku:A-1",
        "urgently",
        "!refused",
        "refused nowhere",
    ],
)
def test_a_search_that_does_not(text: str) -> None:
    assert not finds(text)


@pytest.mark.parametrize(
    "text",
    [
        "is:closed is:conflict",
        "!has:[trace,key,idempotency_key,replays]",
        "!has:[reply_to,expires,headers,body]",
        'partition:"" error:"" text:""',
        "!key:* !trace:* !business_key:*",
        '!key:"" !key:a',
        "until:0s since:0s age:<=0s age:>=0s",
        "!is:open",
    ],
)
def test_a_letter_without_much(text: str) -> None:
    assert finds(text, BARE)


def test_ages_are_those_of_the_time_handed_in() -> None:
    assert not finds("age:>24h", now=NOW)
    assert finds("age:>24h", now=NOW + timedelta(microseconds=1))


@pytest.mark.parametrize("value", ["2026-10-31", "2026-10-31T12:00", "2026-10-31T12:00:00"])
@pytest.mark.parametrize("seconds", [-86401, -60, -1, 0, 0.5, 1, 60, 86399, 86400])
def test_a_time_is_before_in_or_after_another(value: str, seconds: float) -> None:
    dead_at = LETTER.head.dead_at + timedelta(seconds=seconds)
    letter = replace(LETTER, head=replace(LETTER.head, dead_at=dead_at))

    found = [finds(f"dead:{op}{value}", letter) for op in ("<", "", ">")]

    assert sum(found) == 1
    assert finds(f"dead:<={value}", letter) == (found[0] or found[1])
    assert finds(f"dead:>={value}", letter) == (found[1] or found[2])


def test_the_ends_of_time_are_no_trouble() -> None:
    assert finds("dead:<9999-12-31 dead:>0001-01-01 !dead:9999-12-31T23:59:59.999999Z")


def test_longer_ago_than_there_are_dates_is_as_far_back_as_they_go() -> None:
    early = datetime(50, 1, 1, tzinfo=UTC)

    frozen = resolve(parse("since:100d OR since:1000w OR age:>5000w"), early)

    assert show(frozen) == (
        "dead:>=0049-09-23T00:00:00.000000Z OR dead:>=0030-11-02T00:00:00.000000Z "
        "OR dead:<0001-01-01T00:00:00.000000Z"
    )
    assert same(parse(show(frozen)), frozen)


@given(queries(), letters())
def test_not_is_not(query: Node, letter: DeadLetter) -> None:
    assert matches(Not(query), letter, now=NOW) != matches(query, letter, now=NOW)


@given(st.lists(queries(max_terms=4), max_size=4), letters())
def test_none_of_them_is_not_this_one_and_not_that_one(
    parts: list[Node], letter: DeadLetter
) -> None:
    none_of = Not(Any(tuple(parts)))
    not_each = All(tuple(Not(part) for part in parts))

    assert matches(none_of, letter, now=NOW) == matches(not_each, letter, now=NOW)


@given(queries(), letters())
def test_a_letter_fulfils_a_search_as_it_fulfils_what_is_shown_of_it(
    query: Node, letter: DeadLetter
) -> None:
    again = parse(show(query))

    assert matches(again, letter, now=NOW) == matches(query, letter, now=NOW)


@given(queries(), letters(), st.integers(0, 10**9))
def test_a_resolved_search_finds_the_same_whenever_it_is_run(
    query: Node, letter: DeadLetter, later: int
) -> None:
    frozen = resolve(query, NOW)

    then = matches(frozen, letter, now=NOW + timedelta(seconds=later))

    assert then == matches(query, letter, now=NOW)
    assert parse(show(frozen)) is not None


def test_resolving_turns_ages_into_times() -> None:
    query = parse("age:>24h since:1w !until:2026-10-31 key:a OR b")

    assert show(resolve(query, NOW)) == (
        "dead:<2026-10-31T12:00:00.000000Z dead:>=2026-10-25T12:00:00.000000Z "
        "!dead:<=2026-10-31 key:a OR b"
    )


@given(queries(), letters())
def test_the_two_parts_of_a_split_search_are_the_whole(query: Node, letter: DeadLetter) -> None:
    by_head, rest = split(query)

    both = matches(All((*by_head, rest)), letter, now=NOW)

    assert both == matches(query, letter, now=NOW)
    assert not any(map(needs_contents, by_head))


@given(queries(), letters())
def test_a_search_that_needs_no_contents_never_opens_them(query: Node, letter: DeadLetter) -> None:
    without: Anything = replace(letter, message=None)

    by_head, _ = split(query)

    for part in by_head:
        assert matches(part, without, now=NOW) == matches(part, letter, now=NOW)


@pytest.mark.parametrize(
    ("text", "by_head", "rest"),
    [
        ("", [], ""),
        ("is:open", ["is:open"], ""),
        ("refused", [], "refused"),
        ("is:open refused age:>1d body.a:1", ["is:open", "age:>1d"], "refused body.a:1"),
        ("is:open (key:a (refused has:trace))", ["is:open", "key:a", "has:trace"], "refused"),
        ("is:open OR refused", [], "is:open OR refused"),
        ("!(is:open OR refused)", ["!is:open"], "!refused"),
        ("!!(is:open has:body)", ["is:open"], "has:body"),
        ("!(is:open refused)", [], "!(is:open refused)"),
        ("has:[trace,headers]", [], "has:[trace,headers]"),
    ],
)
def test_a_search_splits_into_columns_and_contents(
    text: str, by_head: list[str], rest: str
) -> None:
    found = split(parse(text))

    assert ([show(node) for node in found[0]], show(found[1])) == (by_head, rest)


def test_a_head_can_be_judged_by_itself() -> None:
    term: Anything = parse("age:>=1d")

    assert term_matches_head(term, LETTER.head, NOW)
    assert not term_matches_head(term, BARE.head, NOW)


# Outages are about what an office has seen, not about one letter.
@pytest.mark.parametrize("field", [name for name in FIELDS if name != "during"])
@pytest.mark.parametrize("is_met", [True, False])
def test_generated_letters_meet_terms_of_every_field_and_miss_them(
    field: str, *, is_met: bool
) -> None:
    pairs = st.tuples(terms(FIELDS[field]), letters())

    def fits(pair: tuple[Term, DeadLetter]) -> bool:
        return matches(pair[0], pair[1], now=NOW) is is_met

    # Any will do: the simplest one is not worth looking for.
    quick = settings(max_examples=2000, database=None, phases=[Phase.generate])
    assert find(pairs, fits, settings=quick)


def test_a_prepared_search_judges_many_letters() -> None:
    judge = matcher(parse("is:open"), now=NOW)

    assert [judge(letter) for letter in (LETTER, BARE)] == [True, False]
