import io
from typing import Any

import pytest
from msgspec import structs

from deadletter.core.errors import Conflict
from deadletter.core.letter import Changes, State
from deadletter.core.message import Message
from deadletter.office.archive import check, write_archive
from deadletter.office.archive_import import TakenIn, take_in_archive
from deadletter.office.diff import MOST_BYTES, MOST_LINES, Difference, differences
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, NOW, make_letter
from office.test_archive import HEAD, archive_of


def a_message(body: bytes = b"{}", **fields: Any) -> Message:
    return Message(id="m-1", body=body, sent_at=NOW, **fields)


def diffed(before: Message, after: Message, **how: Any) -> dict[str, list[str]]:
    return {
        one.part: [f"{line.sign}{line.text}" for line in one.lines]
        for one in differences(before, after, **how)
    }


async def test_an_edit_changes_what_is_given_and_nothing_else(
    store: LetterStore, clock: FakeClock
) -> None:
    letter = make_letter(1, headers={"tenant": "eu"}, key="k")
    await store.keep([letter])

    letters = Letters(store, clock)
    head = await letters.edit(letter.id[:8], Changes(key=None), BY)
    edited = await letters.get(head.id)

    assert edited.message == structs.replace(letter.message, key=None)
    assert edited.original == letter.message


async def test_an_edit_of_what_somebody_else_changed_is_a_conflict(
    store: LetterStore, clock: FakeClock
) -> None:
    letters = Letters(store, clock)
    letter = make_letter()
    await store.keep([letter])
    await letters.review([letter.id], BY)

    with pytest.raises(Conflict, match="revision 1, not 0"):
        await letters.edit(letter.id, Changes(body=b"!"), BY, revision=0)


async def test_a_replay_sends_the_edited_message_under_its_own_id(
    engine: Engine, store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    letter = make_letter(body=b"broken", idempotency_key="once")
    await store.keep([letter])
    changes = Changes(body=b"mended", headers=(("tenant", b"\xff"),), key="k")
    letters = Letters(store, clock)
    await letters.edit(letter.id, changes, BY)
    edited = await letters.get(letter.id)

    campaign = await replay.begin([letter.id], BY, query="it")
    await replay.run(campaign.id)

    (delivery,) = await engine.broker.source("orders").receive(limit=5, wait=0, lease=60)
    assert structs.replace(delivery.message, lineage=None) == edited.message
    assert delivery.message.dedup_id == "m-1~1"


@pytest.mark.parametrize("state", [State.PENDING, State.CLOSED, State.DISCARDED])
async def test_an_archive_holds_what_died_beside_what_it_became(
    store: LetterStore, clock: FakeClock, state: State
) -> None:
    letter = make_letter(body=bytes(range(256)), headers={"x": b"\xff\x00"})
    await store.keep([letter])
    letters = Letters(store, clock)
    await letters.edit(letter.id, Changes(body=b"mended", key="k"), BY)
    if state is not State.PENDING:
        await (letters.close if state is State.CLOSED else letters.discard)([letter.id], BY)
    (before,) = await store.get([letter.id])
    file = io.BytesIO()
    await write_archive(store, [letter.id], file, HEAD)
    await store.purge([letter.id], BY)

    for added in (1, 0):
        file.seek(0)
        result = await take_in_archive(store, file, BY, archive="a.jsonl")
        assert result == TakenIn(added=added, known=1 - added)

    (after,) = await store.get([letter.id])
    assert after.message == before.message
    assert after.original == letter.message
    assert after.head.state is state
    assert await store.verify() == []


async def test_a_letter_kept_apart_is_imported_with_its_edit(
    store: LetterStore, clock: FakeClock
) -> None:
    one, two = make_letter(body=b"one"), make_letter(body=b"two")
    _, apart = await store.keep([one, two])
    await Letters(store, clock).edit(apart.id, Changes(body=b"three"), BY)
    file = io.BytesIO()
    await write_archive(store, [apart.id], file, HEAD)
    await store.purge([apart.id], BY)
    file.seek(0)

    await take_in_archive(store, file, BY, archive="a")

    (back,) = await store.get([apart.id])
    assert (back.message.body, back.as_it_died.body) == (b"three", b"two")


def test_an_archive_cannot_pretend_an_edit_of_another_message() -> None:
    letter = make_letter()
    forged = structs.replace(letter, original=structs.replace(letter.message, reply_to="elsewhere"))

    (problem,) = check(archive_of(forged)).problems

    assert problem.line == 2
    assert problem.text.startswith("it was edited where")


def test_json_is_compared_field_by_field_and_as_it_was_written() -> None:
    before = a_message(b'{"id":1,"amount":1.10,"items":[1,2]}')
    after = a_message(b'{"id":1,"amount":1.1,"items":[1,2]}')

    assert diffed(before, after)["body"] == [
        " {",
        '   "id": 1,',
        '-  "amount": 1.10,',
        '+  "amount": 1.1,',
        '   "items": [',
        "     1,",
        "     2",
    ]


def test_a_difference_of_layout_alone_is_shown_as_it_is() -> None:
    assert diffed(a_message(b"[1]"), a_message(b"[1]\r\n"))["body"] == ["-[1]", "+[1]\r", "+"]


def test_binary_bodies_are_compared_in_hex() -> None:
    assert diffed(a_message(b"\xff\x00"), a_message(b"ok"))["body"] == ["-ff 00", "+6f 6b"]


def test_secrets_are_masked_and_still_differ() -> None:
    before = a_message(b'{"password": "one"}', headers=(("authorization", b"a"), ("b", b"c")))
    after = a_message(b'{"password": "two"}', headers=(("authorization", b"z"), ("b", b"c")))

    masked = diffed(before, after)
    revealed = diffed(before, after, reveal=True)

    assert masked["headers"][0] == "-authorization: [redacted]"
    assert not any("one" in line or "two" in line for line in masked["body"])
    assert len(masked["body"]) == len(revealed["body"])
    assert '+  "password": "two"' in revealed["body"]


def test_values_of_secret_fields_are_masked_line_by_line() -> None:
    before = a_message(b'{"credentials": {"user": "anna", "pin": [1, 2]}, "n": 1}')
    after = a_message(b'{"credentials": {"user": "otto", "pin": [1, 3]}, "n": 1}')

    masked = diffed(before, after)["body"]

    assert masked == [
        " {",
        '   "credentials": [redacted]',
        "-    [redacted]",
        "+    [redacted]",
        "     [redacted]",
        "       [redacted]",
        "-      [redacted]",
        "+      [redacted]",
        "     [redacted]",
        "   },",
        '   "n": 1',
    ]
    assert '+    "user": "otto",' in diffed(before, after, reveal=True)["body"]


def test_secrets_among_bytes_are_masked_and_still_differ() -> None:
    before = a_message(b"\xff password=hunter2")
    after = a_message(b"\xff password=hunter3")

    assert differences(before, after) == (Difference(part="body", lines=(), cut=True),)
    assert b"hunter3".hex(" ")[:8] in "".join(diffed(before, after, reveal=True)["body"])


@pytest.mark.parametrize(
    "body",
    [
        b"\n".join(b"%d" % n for n in range(100_000)),
        b"x" * 5_000_000,
        b"[" * 300 + b"1," * 100_000,
        b"{" * 100_000,
    ],
)
def test_a_difference_is_bounded_however_large_the_bodies_are(body: bytes) -> None:
    (found,) = differences(a_message(body), a_message(body[::-1] + b"!"))

    assert len(found.lines) <= 2 * MOST_LINES
    assert sum(len(line.text) for line in found.lines) < 2_000_000


def test_a_difference_behind_what_is_compared_is_told() -> None:
    body = b"x" * (MOST_BYTES + 10)

    (found,) = differences(a_message(body), a_message(body + b"y"))

    assert (found.lines, found.cut) == ((), True)


def test_every_part_that_differs_is_named() -> None:
    before = a_message(content_type="a", key=None)
    after = a_message(content_type="b", key="k", headers=(("x", b"\xff"),))

    assert diffed(before, after) == {
        "content type": ["-a", "+b"],
        "key": ["+k"],
        "headers": ["+x: \\xff"],
    }
