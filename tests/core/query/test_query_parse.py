"""What one can type, and the tree it becomes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.generate import queries
from deadletter.core.errors import QueryError
from deadletter.core.letter import LetterHead
from deadletter.core.query import (
    EVERYTHING,
    FIELDS,
    All,
    Any,
    Field,
    Kind,
    Node,
    Not,
    Op,
    Term,
    Word,
    parse,
    same,
    show,
)

A, B, C, D = (Word(text) for text in "abcd")


def is_(field: str, *values: str, path: tuple[str, ...] = ()) -> Term:
    return Term(field, Op.IS, values, path)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", EVERYTHING),
        (" \t\n ", EVERYTHING),
        ("*", EVERYTHING),
        ("!*", Not(EVERYTHING)),
        ("a", A),
        ("a b", All((A, B))),
        ("a AND b", All((A, B))),
        ("a and b", All((A, B))),
        ("a OR b", Any((A, B))),
        ("a or b", Any((A, B))),
        ("a b OR c d", Any((All((A, B)), All((C, D))))),
        ("a AND b OR c", Any((All((A, B)), C))),
        ("a (b OR c)", All((A, Any((B, C))))),
        ("a (b)", All((A, B))),
        ("((a))", A),
        ("(a b) c", All((All((A, B)), C))),
        ("!a", Not(A)),
        ("! a", Not(A)),
        ("!!a", Not(Not(A))),
        ("!(a b)", Not(All((A, B)))),
        ("!a b", All((Not(A), B))),
        ("!key:a", Not(is_("key", "a"))),
        ('"a b"', Word("a b")),
        ('"AND"', Word("AND")),
        (r'"say \"hi\""', Word('say "hi"')),
        (r"a\ b", Word("a b")),
        (r"a\:b", Word("a:b")),
        (r"100\*", Word(r"100\*")),
        (r"a\\b", Word(r"a\\b")),
        ("con*ed", Word("con*ed")),
        ("a***b", Word("a*b")),
        ("not found", All((Word("not"), Word("found")))),
        ("[Errno 111]", All((Word("[Errno"), Word("111]")))),
        ("wow!", Word("wow!")),
        ("a...b", Word("a...b")),
    ],
)
def test_words_and_what_joins_them(text: str, tree: Node) -> None:
    assert same(parse(text), tree)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("is:pending", is_("is", "pending")),
        ("is:Unreviewed", is_("is", "pending")),
        ("is:[open,conflict]", is_("is", "open", "conflict")),
        ("has:trace", is_("has", "trace")),
        ("has:business_key", is_("has", "idempotency_key")),
        ("has:reply-to", is_("has", "reply_to")),
        ("id:abc*", is_("id", "abc*")),
        ("source:orders", is_("source", "orders")),
        ("mailbox:orders", is_("source", "orders")),
        ("Source:orders", is_("source", "orders")),
        ("partition:3", is_("partition", "3")),
        ('partition:""', is_("partition", "")),
        ("message:m-1", is_("message", "m-1")),
        ("key:customer-7", is_("key", "customer-7")),
        ("business_key:order-42", is_("business_key", "order-42")),
        ("idempotency_key:order-42", is_("business_key", "order-42")),
        ("reason:attempts_exhausted", is_("reason", "attempts-exhausted")),
        ("trouble:worker-lost", is_("trouble", "worker-lost")),
        ("category:non-retryable", is_("category", "NON_RETRYABLE")),
        ("code:HTTP_503", is_("code", "HTTP_503")),
        ("error:TimeoutError", is_("error", "TimeoutError")),
        ('text:"connection refused"', is_("text", "connection refused")),
        ("group:1a2b*", is_("group", "1a2b*")),
        ("attempts:>3", Term("attempts", Op.GT, ("3",))),
        ("attempts:007", is_("attempts", "7")),
        ("attempts:[1,2]", is_("attempts", "1", "2")),
        ("replays:<=2", Term("replays", Op.LE, ("2",))),
        ("version:1.8.*", is_("version", "1.8.*")),
        ("consumer:charge", is_("consumer", "charge")),
        ("trace:4bf92f35*", is_("trace", "4bf92f35*")),
        ("size:>=1000", Term("size", Op.GE, ("1000",))),
        ("age:>24h", Term("age", Op.GT, ("24h",))),
        ("age:<2D", Term("age", Op.LT, ("2d",))),
        ("since:7d", is_("since", "7d")),
        ("since:2026-11-01", is_("since", "2026-11-01")),
        ("until:90s", is_("until", "90s")),
        ("dead:2026-11-01", is_("dead", "2026-11-01")),
        ("dead:>2026-11-01T12:00", Term("dead", Op.GT, ("2026-11-01T12:00Z",))),
        ("first:<2026-11-01T12:00:01Z", Term("first", Op.LT, ("2026-11-01T12:00:01Z",))),
        ("dead:2026-11-01t14:00+02:00", is_("dead", "2026-11-01T12:00Z")),
        ("dead:2026-11-01T12:00:00.5Z", is_("dead", "2026-11-01T12:00:00.500000Z")),
        ("header.tenant:eu", is_("header", "eu", path=("tenant",))),
        ("header.x.y-z:eu", is_("header", "eu", path=("x.y-z",))),
        ('header."x y":eu', is_("header", "eu", path=("x y",))),
        ("header.tries:>3", Term("header", Op.GT, ("3",), ("tries",))),
        ("body.order.id:42", is_("body", "42", path=("order", "id"))),
        ("body.items.0.sku:A-1", is_("body", "A-1", path=("items", "0", "sku"))),
        ('body."a.b"."":x', is_("body", "x", path=("a.b", ""))),
        (r"body.a\.b:x", is_("body", "x", path=("a.b",))),
        ('body."a**b":x', is_("body", "x", path=("a**b",))),
        ("body.a**b:x", is_("body", "x", path=("a**b",))),
        (r'body."\*":x', is_("body", "x", path=("*",))),
        ("body.amount:<=-0.5", Term("body", Op.LE, ("-0.5",), ("amount",))),
        ('key:[a, "b c" ,d*]', is_("key", "a", "b c", "d*")),
        ("key:[a]", is_("key", "a")),
        ("key:a:b,c]", is_("key", "a:b,c]")),
        (r"key:\>a", is_("key", ">a")),
        ('key:">a"', is_("key", ">a")),
        ("(key:a)", is_("key", "a")),
    ],
)
def test_fields_and_their_values(text: str, tree: Node) -> None:
    assert same(parse(text), tree)
    assert same(parse(show(tree)), tree)


def test_terms_know_where_they_stood() -> None:
    tree = parse('  key:a OR "b"')

    assert tree == Any((Term("key", Op.IS, ("a",), at=2), Word("b", at=11)))


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_every_field_has_an_example_that_can_be_typed(field: Field) -> None:
    tree = parse(field.example)

    assert isinstance(tree, Term)
    assert tree.field == field.name


def test_every_field_about_the_head_names_an_attribute_of_it() -> None:
    several = {"is", "has", "during"}
    known = {*LetterHead.__struct_fields__, "category"}

    attributes = {
        field.attribute
        for field in FIELDS.values()
        if field.kind is not Kind.PATH and field.name not in several
    }

    assert attributes <= known


@given(queries())
def test_rendered_queries_parse_to_the_same_query(query: Node) -> None:
    assert same(parse(show(query)), query)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (EVERYTHING, ""),
        (All((A,)), "a"),
        (Any((All((A, B)),)), "a b"),
        (Not(All((Any((A, B)),))), "!(a OR b)"),
        (All((EVERYTHING, A)), "* a"),
        (Any(()), "!*"),
        (Any((A, Any((B, C)))), "a OR (b OR c)"),
        (Any((A, All((B, C)))), "a OR b c"),
        (Any((A, All((Any((B, C)),)))), "a OR (b OR c)"),
        (is_("header", "x", path=(".dots..",)), 'header.".dots..":x'),
        (is_("body", "x", path=("a.b", 'say "*"')), r'body."a.b"."say \"\*\"":x'),
        (Word("or"), '"or"'),
        (Word("!a"), '"!a"'),
        (is_("key", "a**b"), "key:a*b"),
    ],
)
def test_a_tree_made_by_hand_can_be_shown(tree: Node, text: str) -> None:
    assert show(tree) == text


_snippets = st.sampled_from(
    [
        *("is:", "key:", "body.", "header.", "age:>", "[", "]", ",", "(", ")", "!"),
        *('"', "\\", "*", " ", "AND", "OR", "a", "7d", "2026-11-01", "T", ":", "."),
        *("\0", "\ud800", "é", "\u2028"),
    ]
)


@settings(max_examples=500)
@given(st.text() | st.lists(_snippets, max_size=40).map("".join))
def test_any_text_is_a_search_or_a_query_error(text: str) -> None:
    try:
        tree = parse(text)
    except QueryError as error:
        assert error.text  # noqa: PT017 -- either way is right, each has its law
        assert 0 <= error.at <= len(text)  # noqa: PT017 -- as above
    else:
        assert same(parse(show(tree)), tree)
