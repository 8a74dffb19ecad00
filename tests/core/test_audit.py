"""Whoever changes the audit breaks its chain."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.core.audit import act, seal
from deadletter.core.letter import AuditEntry, By
from deadletter.core.seals import Chain, check_chain, entry_hash
from deadletter.core.text import many
from deadletter.testing.fakes import START

_TEXTS = ("actor", "action", "target", "reason", "detail")

_texts = st.text(max_size=4)
_entries = st.lists(
    st.builds(
        AuditEntry,
        seq=st.just(0),
        at=st.integers(0, 10).map(lambda n: START + timedelta(microseconds=n)),
        **dict.fromkeys(_TEXTS, _texts),
    ),
    max_size=6,
)
_chains = _entries.map(lambda entries: seal(entries, seq=0, previous=""))


@given(chain=_chains)
def test_a_chain_as_it_was_written_is_sound(chain: list[AuditEntry]) -> None:
    assert list(check_chain(chain)) == []
    assert [entry.seq for entry in chain] == list(range(1, len(chain) + 1))


@given(first=_entries, second=_entries)
def test_a_chain_goes_on_where_it_ended(first: list[AuditEntry], second: list[AuditEntry]) -> None:
    begun = seal(first, seq=0, previous="")
    last = begun[-1].hash if begun else ""

    whole = begun + seal(second, seq=len(begun), previous=last)

    assert whole == seal(first + second, seq=0, previous="")
    stretch = whole[len(begun) :]
    assert list(check_chain(stretch, seq=len(begun), previous=last)) == []


@given(
    chain=_chains.filter(bool),
    place=st.integers(0, 5),
    field=st.sampled_from(("at", "previous", "hash", *_TEXTS)),
    text=_texts,
)
def test_a_changed_entry_is_found_out(
    chain: list[AuditEntry], place: int, field: str, text: str
) -> None:
    entry = chain[place % len(chain)]
    new: Any = entry.at + timedelta(days=1) if field == "at" else text + "!"
    if getattr(entry, field) == new:
        return
    chain[place % len(chain)] = replace(entry, **{field: new})

    assert list(check_chain(chain))


@given(chain=_chains.filter(lambda c: len(c) > 1), place=st.integers(0, 5))
def test_a_missing_entry_is_found_out(chain: list[AuditEntry], place: int) -> None:
    del chain[place % (len(chain) - 1)]  # the last one is watched over by stores

    assert list(check_chain(chain))


@given(chain=_chains.filter(lambda c: len(c) > 1), data=st.data())
def test_entries_in_another_order_are_found_out(
    chain: list[AuditEntry], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(chain).filter(lambda order: order != chain))

    assert list(check_chain(other))


@given(entry=_entries.filter(bool).map(lambda entries: entries[0]), text=_texts)
def test_text_cannot_move_from_one_field_to_the_next(entry: AuditEntry, text: str) -> None:
    moved = replace(entry, reason=entry.reason + text, detail="")
    original = replace(entry, detail=text)

    same = entry_hash("", moved) == entry_hash("", original)
    assert same == (moved == original)


def test_plans_of_thousands_of_letters_are_counted() -> None:
    chain = Chain()
    detail = f"{many(5_000, 'letter')}: is:open"
    chain.add(seal([act("replay", "c-1", By("anna"), at=START, detail=detail)], seq=0, previous=""))

    assert chain.missing_plans({"c-1": 5_000}) == []
    assert chain.missing_plans({"c-1": 4_999}) != []
