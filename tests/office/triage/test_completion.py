"""Completions of a search while it is typed."""

import json

from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import QueryError
from deadletter.core.query import parse
from deadletter.office.triage.completion import (
    MOST_OPTIONS,
    MOST_SAVED,
    SearchValues,
    count_places,
    count_values,
    query_before,
    suggest,
)
from office.making import make_letter

KNOWN = SearchValues(
    {
        "source": {"orders": 12, "orders eu": 3, "mails": 40},
        "error": {"TimeoutError": 5, "KeyError": 7},
        "is": {"pending": 9},
        "version": {"1.8": 2, "a*b": 1},
    },
    {"body.order.id": 8, 'body."odd name"': 1, "header.tenant": 3},
)


def texts(query: str, at: int | None = None) -> list[str]:
    return [one.text for one in suggest(query, len(query) if at is None else at, KNOWN)]


def test_nothing_typed_offers_fields_with_their_meaning() -> None:
    options = suggest("", 0, KNOWN)

    assert len(options) == MOST_OPTIONS
    assert options[0].text == "is:"
    assert "state" in options[0].about
    assert texts("is:open ")[:1] == ["is:"]


def test_the_beginning_of_a_name_offers_matching_fields() -> None:
    assert texts("ver") == ["version:"]
    assert texts("is:open (!so") == ["source:"]
    assert texts("mailb") == ["source:"]
    assert texts("bo") == ["body."]


def test_values_come_with_counts_the_most_frequent_first() -> None:
    options = suggest("is:open source:", 15, KNOWN)

    assert [(one.text, one.count) for one in options] == [
        ("mails", 40),
        ("orders", 12),
        ('"orders eu"', 3),
    ]
    assert {(one.start, one.end) for one in options} == {(15, 15)}
    assert texts("source:or") == ["orders", '"orders eu"']
    assert texts("error:err") == ["KeyError", "TimeoutError"]
    assert texts("is:pe") == ["pending"]
    assert texts("version:") == ["1.8", "a\\*b"]
    assert "7d" in texts("since:")
    assert texts("nosuch:") == []


def test_the_last_value_of_a_list_is_completed() -> None:
    text = "source:[mails,or"

    options = suggest(text, len(text), KNOWN)

    assert [one.text for one in options] == ["orders", '"orders eu"']
    done = [text[: one.start] + one.text + text[one.end :] for one in options]
    assert done == ["source:[mails,orders", 'source:[mails,"orders eu"']


def test_places_in_contents_are_offered() -> None:
    assert texts("body.") == ["body.order.id:", 'body."odd name":']
    assert texts("is:open header.t") == ["header.tenant:"]


def test_only_what_stands_before_the_cursor_counts() -> None:
    assert texts("source:or is:open", 9) == ["orders", '"orders eu"']
    assert texts('text:"source:') == []
    assert query_before("is:open source:or", 17) == "is:open "


def test_masked_odd_and_deep_places_are_left_out() -> None:
    body = {
        "order": {"id": 1, "items": [1], "a": {"b": {"c": {"d": 1}}}},
        "password": "x",
        "token": {"x": 1},
        "od\nd": 1,
        "a b": 2,
        "x" * 100: 3,
    }
    headers = {"tenant": "eu", "authorization": "x"}
    letters = [make_letter(n, body=json.dumps(body).encode(), headers=headers) for n in range(3)]
    letters.append(make_letter(9, body=b"\xff not JSON"))

    places = count_places(letters)

    assert places == {
        "body.order.id": 3,
        "body.order.items": 3,
        'body."a b"': 3,
        "header.tenant": 3,
    }
    for place in places:
        parse(f"{place}:1")


def test_masked_values_are_not_offered() -> None:
    heads = [make_letter(1, consumer="password=hunter2", key="Bearer abcdefghijkl12345678").head]
    known = count_values(heads, {"orders": 3, "old": 9}, {"KeyError": 4})

    for field in ("consumer", "key"):
        assert suggest(f"{field}:", 99, known) == []
    assert [one.text for one in suggest("source:", 7, known)] == ["old", "orders"]
    assert [one.text for one in suggest("error:", 6, known)] == ["KeyError", "TimeoutError"]


@given(st.text(max_size=60), st.integers(0, 70), st.text(max_size=20))
def test_any_text_has_options_that_fit_it(text: str, at: int, odd: str) -> None:
    known = SearchValues({"source": {odd: 1}, "key": {odd: 2}}, {"body.a": 1})
    for query in (text, f"source:{text[:3]}"):
        for option in suggest(query, at, known):
            assert 0 <= option.start <= option.end <= len(query)


@given(st.text(min_size=1, max_size=30))
def test_offered_values_are_valid_searches(value: str) -> None:
    for option in suggest("source:", 7, SearchValues({"source": {value: 1}})):
        try:
            parse(f"source:{option.text}")
        except QueryError as error:
            raise AssertionError(option.text) from error


def test_saved_searches_are_offered_by_their_names_first() -> None:
    saved = {"Slow bank": "error:TimeoutError is:open", "Old": "age:>7d"}
    known = SearchValues({}, saved=saved)

    assert [one.text for one in suggest("", 0, known)][:2] == list(saved.values())
    (option, *_) = suggest("slow  BA", 8, known)
    assert (option.text, option.start, option.end) == (saved["Slow bank"], 0, 8)
    for query, at in (("is:open slow", 12), ("slow", 2), ('"slow', 5), ("(old", 4)):
        offered = [one.text for one in suggest(query, at, known)]
        assert not set(offered).intersection(saved.values()), query


def test_few_saved_searches_leave_room_for_fields() -> None:
    known = SearchValues({}, saved={f"n-{number}": "is:open" for number in range(50)})

    offered = suggest("", 0, known)

    assert sum(one.about.startswith("saved as ") for one in offered) == MOST_SAVED
    assert len(offered) == MOST_OPTIONS
