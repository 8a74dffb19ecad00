"""Saved searches: their names, and who sees which."""

import pytest

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.saved_search import (
    LONGEST_NAME,
    SavedSearch,
    checked_name,
    checked_query,
    decode_search,
    encode_search,
    works_for,
)
from deadletter.testing.fakes import START


def a_search(query: str, *, principal: str = "p-1") -> SavedSearch:
    return SavedSearch(name="n", query=query, saved_by="anna", saved_at=START, principal=principal)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("  Old   orders ", "Old orders"),
        ("Verfu\u0308gbar", "Verf\u00fcgbar"),
        ("a/b", "a/b"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
    ],
)
def test_names_have_one_form(name: str, kept: str) -> None:
    assert checked_name(name) == kept


@pytest.mark.parametrize(
    "name", ["", "  ", ".", "..", "x" * 81, "a\x1bb", "a\u202eb", "\ud800", "\0"]
)
def test_names_that_people_cannot_read_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 80 printable characters"):
        checked_name(name)


def test_an_invalid_search_says_where() -> None:
    with pytest.raises(QueryError) as caught:
        checked_query("is:open is:pendng")
    assert caught.value.at == 11


@pytest.mark.parametrize("query", ["", "  ", "*"])
def test_an_empty_search_is_refused(query: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        checked_query(query)


def test_a_search_is_kept_as_it_was_typed() -> None:
    assert checked_query(" is:open  OR  age:>2d ") == "is:open  OR  age:>2d"
    with pytest.raises(ConfigError, match="2,000 characters"):
        checked_query("is:open " + "x" * 2_000)


LIMITED = Identity(name="ben", role=Role.OPERATOR, sources=("orders", "mails"), principal="p-2")
READER = Identity(name="eve", role=Role.READER, principal="p-3")


@pytest.mark.parametrize(
    "query",
    [
        "source:orders key:c-7",
        "source:[orders,mails] refused",
        "is:open age:>24h attempts:>3",
        "!is:closed OR has:replays",
        "source:orders !source:mails",
    ],
)
def test_limited_callers_see_searches_that_work_for_them(query: str) -> None:
    assert works_for(a_search(query), LIMITED)


@pytest.mark.parametrize(
    "query",
    [
        "key:c-7",
        "refused",
        "source:payments",
        "source:[orders,payments]",
        "source:or*",
        "source:orders OR key:c-7",
        "!source:orders key:c-7",
        "source:orders !source:payments",
        "text:secret is:open",
        "body.amount:>100",
        "is:gone-in-a-later-version",
    ],
)
def test_limited_callers_see_no_other_searches_but_their_own(query: str) -> None:
    assert not works_for(a_search(query), LIMITED)
    if "later" not in query:
        assert works_for(a_search(query, principal="p-2"), LIMITED)


def test_searches_without_an_owner_belong_to_nobody() -> None:
    nobody = Identity(name="ben", role=Role.OPERATOR, sources=("orders",))
    assert not works_for(a_search("key:c-7", principal=""), nobody)


@pytest.mark.parametrize("query", ["body.password:a*", "header.authorization:x is:open"])
def test_readers_do_not_see_searches_for_what_is_masked(query: str) -> None:
    assert not works_for(a_search(query), READER)
    assert works_for(a_search(query), Identity(name="ada", role=Role.OPERATOR))
    assert works_for(a_search(query), None)


def test_readers_see_all_other_searches() -> None:
    assert works_for(a_search("key:c-7 refused"), READER)


def test_a_search_is_the_same_from_a_store() -> None:
    search = a_search('text:"\ud800 \0 \U0001f4a5"')
    assert decode_search(encode_search(search)) == search
