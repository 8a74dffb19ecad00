"""Facets, letters nearby, and what letters of a group have in common."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deadletter.core.letter import State
from deadletter.core.redact import MASK
from deadletter.office.office import Office
from deadletter.office.triage.common_values import common_values
from deadletter.office.triage.facets import count_facets
from deadletter.office.triage.layout import Form
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from office.making import BY, make_letter, make_letters


@pytest.fixture
def office(engine: Engine, clock: FakeClock, dice: SeededDice) -> Office:
    return Office(engine, clock, dice)


async def test_facets_narrow_a_search(office: Office, store: LetterStore) -> None:
    await store.keep(make_letters(4, source="orders", version="1.8"))
    await store.keep(make_letters(2, source="my mails", error_type="shop.NoFunds", version=""))
    await store.keep([make_letter(99, state=State.CLOSED)])

    found = await office.triage.facets("is:open")

    assert found.looked_at == 6
    by_field = {facet.field: facet for facet in found.facets}
    assert set(by_field) == {"error", "source", "version", "reason", "trouble", "consumer", "state"}
    for facet in found.facets:
        for one in facet.values:
            counted = await office.letters.count(f"is:open {one.query}")
            assert counted.letters == one.count, one.query
    assert [one.value for one in by_field["error"].values] == ["TimeoutError", "NoFunds"]
    assert [one.query for one in by_field["source"].values] == [
        "source:orders",
        'source:"my mails"',
    ]
    limited = await office.triage.facets(sources=("my mails",))
    assert limited.looked_at == 2


def test_many_values_are_cut_and_secrets_masked() -> None:
    heads = [make_letter(n, consumer=f"c-{n}").head for n in range(30)]
    heads += [make_letter(n, consumer="token=hunter2").head for n in range(30, 40)]

    (facet,) = [one for one in count_facets(heads).facets if one.field == "consumer"]

    assert facet.others + sum(one.count for one in facet.values) == 40
    assert (facet.values[0].value, facet.values[0].query) == (f"token={MASK}", "")


async def test_nearby_letters_are_counted(office: Office, store: LetterStore) -> None:
    mine = make_letter(1, key="c-7", trace_id="t-1")
    await store.keep(
        [
            mine,
            make_letter(2, key="c-7", died=timedelta(minutes=1)),
            make_letter(3, key="c-7", died=timedelta(minutes=9)),
            make_letter(4, key="c-7", source="mails"),
            make_letter(5, trace_id="t-1", source="mails"),
        ]
    )

    near = {one.field: one for one in await office.triage.nearby(mine.id)}
    limited = {one.field: one for one in await office.triage.nearby(mine.id, sources=("orders",))}

    assert (near["key"].letters, near["key"].newer) == (2, 1)
    assert (near["trace"].letters, limited["trace"].letters) == (1, 0)
    assert (near["message"].letters, near["group"].letters) == (0, 2)
    for one in near.values():
        counted = await office.letters.count(one.query)
        assert counted.letters == one.letters + 1


async def test_contents_are_masked_unless_revealed_and_that_is_audited(
    office: Office, store: LetterStore
) -> None:
    letter = make_letter(body=b'{"password":"hunter2","n":1}')
    await store.keep([letter])

    shown = await office.triage.contents(letter.id, BY)
    assert "hunter2" not in str(shown)
    assert await store.audit() == []

    revealed = await office.triage.contents(letter.id, BY, form=Form.RAW, reveal=True)
    assert "hunter2" in revealed.lines[0].text
    assert [entry.action for entry in await store.audit()] == ["reveal"]


async def test_common_values_come_first_then_what_varies(
    office: Office, store: LetterStore
) -> None:
    await store.keep(
        [
            make_letter(
                n,
                fingerprint="1-a",
                key=f"c-{n % 3}",
                body=json.dumps(
                    {
                        "country": "CH",
                        "amount": 3 * n,
                        "password": f"hunter{n}",
                        "a": {"b": {"c": {"d": "deep", "e": {"f": 1}}}},
                        "tags": [1, 2],
                    }
                ).encode(),
                headers={"tenant": "eu" if n else "us", "authorization": "x"},
            )
            for n in range(20)
        ]
    )

    found = await office.triage.common_values("1-a")

    shared = {one.field: one for one in found.shared}
    varying = {one.field: one for one in found.varying}
    assert (found.looked_at, found.opened) == (20, 20)
    assert (shared["body.country"].value, shared["body.country"].count) == ("CH", 20)
    assert (shared["header.tenant"].count, shared["header.tenant"].distinct) == (19, 2)
    assert shared["body.a.b.c.d"].value == "deep"
    assert shared["version"].value == "1.8.0"
    assert "body.a.b.c.e.f" not in shared
    assert shared["body.password"].value == shared["header.authorization"].value == MASK
    assert [one.value for one in found.shared[-2:]] == [MASK, MASK]
    assert (varying["body.amount"].least, varying["body.amount"].most) == (0, 57)
    assert (varying["key"].distinct, varying["key"].least) == (3, None)
    assert (varying["size"].present, varying["size"].distinct) == (20, 3)
    assert "hunter" not in str(found)


_TEXTS = st.text(max_size=30) | st.sampled_from(["</script>", "\u202e", "\x00", "\ud800"])


@given(
    st.lists(
        st.tuples(
            st.dictionaries(_TEXTS | st.just("password"), st.just("hunter2") | _TEXTS, max_size=4)
            | st.binary(max_size=50),
            st.lists(st.tuples(_TEXTS.filter(str.isascii), st.binary(max_size=40)), max_size=4),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_hostile_contents_never_fail_and_secrets_stay_masked(found: list[Any]) -> None:
    letters = []
    for n, (body, headers) in enumerate(found):
        octets = body if isinstance(body, bytes) else json.dumps({"password": body}).encode()
        letter = make_letter(n, body=octets)
        message = structs.replace(letter.message, headers=tuple(headers))
        letters.append(structs.replace(letter, message=message))

    common = common_values("1-a", letters, opened=len(letters))

    assert "hunter2" not in str(common)
