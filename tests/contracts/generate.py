"""
Messages, letters and searches made up by hypothesis.

Letters and searches draw on the same small stock of words and times, so that
searches find something; about `NOW` their times meet to the microsecond.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any as Anything
from typing import Final

from hypothesis import strategies as st

from deadletter.core.attempts import Attempt, append
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query.ast import All, Any, Node, Not, Op, Term, Word
from deadletter.core.query.fields import FIELDS, Field, Kind, instant, literal, pattern
from deadletter.core.query.search_step import Budget

NOW: Final = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
"""The time generated letters and searches are about."""

_SPANS: Final = {
    "0s": timedelta(0),
    "90s": timedelta(seconds=90),
    "15m": timedelta(minutes=15),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "2w": timedelta(weeks=2),
}
_NUDGES: Final = [timedelta(microseconds=n) for n in (0, -1, 1, 1_000_000)]
_STOCK: Final[dict[str, list[str]]] = {
    "id": [letter_id("orders", "", "m-1"), letter_id("Größen*", "12", "m-2")],
    "source": ["orders", "orders.eu", "Größen*"],
    "partition": ["", "12"],
    "message_id": ["m-1", "m-2", "m 3", "*", 'say "hi"'],
    "key": ["k-1", "K-1", "customer 7", "a\\b"],
    "business_key": ["order-42", "order-43"],
    "code": ["TIMEOUT", "HTTP_503", ""],
    "error_type": ["TimeoutError", "shop.errors.NoFunds", "shop.Timeouts.Late", ""],
    "error_text": [
        "connection refused by 10.0.0.7",
        "Timeout AFTER 30s",
        "ÄRGER: ärger 100%_*\\",
        "",
    ],
    "fingerprint": ["f1", "f2"],
    "consumer": ["charge", "ship", ""],
    "version": ["1.8.0", "1.9.0", ""],
    "trace_id": ["4bf92f3577b34da6", "00f067aa0ba902b7"],
}
_DOCUMENTS: Final[list[Anything]] = [
    {"order": {"id": 42, "items": [{"sku": "A-1"}, {"sku": "B 2"}]}, "amount": 99.5},
    {"order": {"id": "42", "items": []}, "amount": -1, "paid": True, "note": None},
    {"order": {"id": 42.0}, "amount": "100", "tags": ["urgent", 7, {"x": 1}]},
    {"a.b": {"": "refused"}, "paid": "true"},
    [1, [2, 3], "Timeout"],
    "refused",
    42,
]
_ODD_BODIES: Final = [
    b"",
    b"connection REFUSED",
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"amount": 1e999}',
    b'{"amount": ' + b"9" * 400 + b"}",
]
_PLACES: Final = [
    (("order", "id"), "42"),
    (("order", "id"), "42.0"),
    (("order", "items", "0", "sku"), "A-1"),
    (("order", "items", "1", "sku"), "B 2"),
    (("order", "items"), "A-1"),
    (("amount",), "99.5"),
    (("amount",), "100"),
    (("paid",), "true"),
    (("note",), "null"),
    (("tags",), "urgent"),
    (("a.b", ""), "refused"),
    (("0",), "1"),
    (("1", "1"), "3"),
    (("no", "such"), "place"),
]
_HEADERS: Final = [("tenant", b"eu"), ("Tenant", b"us"), ("x.tries", b"3")]
_NAMES: Final = [
    (("tenant",), "eu"),
    (("TENANT",), "us"),
    (("x.tries",), "3"),
    (("no such",), "eu"),
]
_WORDS: Final = ["refused", "timeout", "TIMEOUT", "ärger", "A-1", "100%", "and", "x"]

_text: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
_spans: Final = st.sampled_from(list(_SPANS))
_numbers: Final = st.sampled_from(["0", "-1", "42", "99.5", "100"])
_moments: Final = st.builds(
    lambda span, nudge: NOW - span + nudge,
    st.sampled_from(list(_SPANS.values())),
    st.sampled_from(_NUDGES),
)


def bodies() -> st.SearchStrategy[bytes]:
    """Bodies as they come: JSON, text, odd bytes, and some that mean harm."""
    documents = [json.dumps(document).encode() for document in _DOCUMENTS]
    known = st.sampled_from([*documents, *documents, *_ODD_BODIES])
    return known | st.binary(max_size=16)


def budgets() -> st.SearchStrategy[Budget]:
    """Budgets of a step, most of them spent at once, by each of their limits."""
    return st.sampled_from(
        [
            Budget(letters=1, opened=1),
            Budget(letters=3, opened=2),
            Budget(opened=2),
            Budget(size=1),
            Budget(size=60),
            Budget(seconds=0.0),
            Budget(seconds=60.0),
        ]
    )


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Messages with and without everything a message may have."""
    maybe = st.none() | st.booleans()  # None twice as often as each of the others
    return Message(
        id=draw(_stock("message_id")),
        body=draw(bodies()),
        sent_at=draw(_moments) - timedelta(days=1),
        headers=tuple(draw(st.lists(_headers(), max_size=3))),
        content_type="application/json" if draw(maybe) else None,
        key=draw(st.none() | _stock("key")),
        expires_at=NOW + timedelta(days=1) if draw(maybe) else None,
        reply_to="replies" if draw(maybe) else None,
        idempotency_key=draw(st.none() | _stock("business_key")),
    )


@st.composite
def letters(draw: st.DrawFn, states: st.SearchStrategy[State] | None = None) -> DeadLetter:
    """Letters, true to their messages; in any state unless `states` says which."""
    message = draw(messages())
    source, partition = draw(_stock("source")), draw(_stock("partition"))
    dead_at = draw(_moments)
    trouble, attempts = draw(st.sampled_from(Trouble)), draw(st.integers(1, 6))
    error_type, error_text = draw(_stock("error_type")), draw(_stock("error_text"))
    code = draw(_stock("code"))
    head = LetterHead(
        id=letter_id(source, partition, message.id),
        source=source,
        partition=partition,
        message_id=message.id,
        key=message.key,
        business_key=message.idempotency_key,
        state=draw(states or st.sampled_from(State)),
        reason=draw(st.sampled_from(Reason)),
        reason_text=error_text,
        trouble=trouble,
        code=code,
        error_type=error_type,
        error_text=error_text,
        fingerprint=draw(_stock("fingerprint")),
        attempts=attempts,
        first_failed_at=min(dead_at, draw(_moments)),
        dead_at=dead_at,
        consumer=draw(_stock("consumer")),
        version=draw(_stock("version")),
        trace_id=draw(st.none() | _stock("trace_id")),
        replays=draw(st.integers(0, 3)),
        conflict=draw(st.booleans()),
        size=len(message.body),
    )
    last = Attempt(
        number=attempts,
        at=dead_at,
        trouble=trouble,
        code=code,
        error_type=error_type,
        text=error_text,
    )
    return DeadLetter(head=head, message=message, history=append("", last))


def queries(max_terms: int = 12) -> st.SearchStrategy[Node]:
    """Searches, each of them such as the parser makes from some text."""
    return st.recursive(
        st.one_of(terms(), terms(), _words()),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=4).map(lambda n: All(tuple(n))),
            st.lists(inner, min_size=2, max_size=4).map(lambda n: Any(tuple(n))),
        ),
        max_leaves=max_terms,
    )


@st.composite
def terms(draw: st.DrawFn, field: Field | None = None) -> Term:
    """Terms of every field, most of which are true of some generated letters."""
    # Comparing versions is about what an office has seen, not about one letter; so are outages.
    of_letters = [one for one in FIELDS.values() if one.kind is not Kind.OUTAGE]
    field = field or draw(st.sampled_from(of_letters))
    op = draw(st.sampled_from(field.ops if field.kind is not Kind.TEXT else (Op.IS,)))
    path: tuple[str, ...] = ()
    values = _values(field)
    if field.kind is Kind.PATH:
        path, found = draw(st.sampled_from(_PLACES if field.name == "body" else _NAMES))
        values = _patterns([found]) if op is Op.IS else _numbers
    most = 3 if op is Op.IS and field.takes_lists else 1
    some = draw(st.lists(values, min_size=1, max_size=most))
    return Term(field.name, op, tuple(some), path)


def _stock(attribute: str) -> st.SearchStrategy[str]:
    return st.sampled_from(_STOCK[attribute])


def _headers() -> st.SearchStrategy[tuple[str, bytes]]:
    return st.sampled_from(_HEADERS) | st.tuples(_text, st.binary(max_size=6))


def _patterns(texts: list[str]) -> st.SearchStrategy[str]:
    """Patterns that fit one of these texts, or nearly, or nothing at all."""
    cut = st.tuples(st.sampled_from(texts), st.integers(0, 12), st.integers(0, 12))
    return st.one_of(
        st.sampled_from(texts).map(literal),
        st.sampled_from(texts).map(str.swapcase).map(literal),
        cut.map(lambda c: pattern((c[0][: c[1]], c[0][c[1] + c[2] :]))),
        st.lists(_text, min_size=1, max_size=4).map(pattern),
    )


@st.composite
def _words(draw: st.DrawFn) -> Word:
    found = draw(_patterns(_WORDS).filter(lambda text: text not in {"", "*"}))
    return Word(found)


def _values(field: Field) -> st.SearchStrategy[str]:
    match field.kind:
        case Kind.ENUM | Kind.FLAG:
            return st.sampled_from([str(choice) for choice in field.choices])
        case Kind.NUMBER:
            return (st.integers(0, 4) | st.integers(0, 40)).map(str)
        case Kind.DURATION:
            return _spans
        case Kind.TIME:
            return _spans | _times() if field.relative else _times()
        case Kind.TEXT:
            return _patterns(_STOCK[field.attribute])
        case Kind.PATH:
            return _numbers


def _times() -> st.SearchStrategy[str]:
    return st.one_of(
        _moments.map(instant),
        _moments.map(lambda moment: moment.strftime("%Y-%m-%d")),
        _moments.map(lambda moment: moment.strftime("%Y-%m-%dT%H:%MZ")),
        _moments.map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")),
    )
