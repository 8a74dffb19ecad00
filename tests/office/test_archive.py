import io
from typing import Any

import pytest
from msgspec import structs

from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Lineage
from deadletter.office import archive as archive_reader
from deadletter.office.archive import (
    ArchiveHead,
    check,
    read_letters,
    small_archives,
    write_archive,
)
from deadletter.office.archive_import import TakenIn, take_in_archive
from deadletter.ports import LetterStore
from office.making import BY, NOW, make_letter, make_letters

HEAD = ArchiveHead(exported_at=NOW)


def archive_of(*letters: DeadLetter) -> io.BytesIO:
    (archive,) = small_archives(letters, HEAD, most=10**9)
    return io.BytesIO(archive)


def problems(file: io.BytesIO) -> list[str]:
    return [str(problem) for problem in check(file).problems]


async def test_exported_letters_are_imported_byte_for_byte(store: LetterStore) -> None:
    letters = [
        make_letter(1, body=bytes(range(256)), headers={"x": b"\xff\x00"}),
        make_letter(2, state=State.CLOSED, key="k"),
        *make_letters(120, source="many"),
    ]
    await store.keep(letters)
    file = io.BytesIO()
    written = await write_archive(store, [one.id for one in letters], file, HEAD)
    await store.purge([one.id for one in letters], BY)
    file.seek(0)

    result = await take_in_archive(store, file, BY, archive="a.jsonl")

    assert written == 122
    assert result == TakenIn(added=122, known=0)
    back = {one.id: one for one in await store.get([one.id for one in letters])}
    for letter in letters:
        assert back[letter.id].message == letter.message
        assert back[letter.id].story() == letter.story()
        assert back[letter.id].head.state is letter.head.state


async def test_letters_that_are_here_stay_as_they_are(store: LetterStore) -> None:
    letter = make_letter(state=State.CLOSED)
    await store.keep([letter])
    (before,) = await store.get([letter.id])
    file = archive_of(make_letter(error_text="forged", replays=4))

    result = await take_in_archive(store, file, BY, archive="a.jsonl")

    assert result == TakenIn(added=0, known=1)
    assert (await store.get([letter.id]))[0] == before


async def test_another_body_under_a_known_id_is_kept_apart(store: LetterStore) -> None:
    here, other = make_letter(body=b"one"), make_letter(body=b"two")
    await store.keep([here])

    for _ in range(2):  # the second time it is known
        await take_in_archive(store, archive_of(other), BY, archive="a")

    apart = letter_id("orders", "", "m-1", body_digest(b"two"))
    bodies = [one.message.body for one in await store.get([here.id, apart])]
    assert bodies == [b"one", b"two"]
    assert sum((await store.counts())["orders"].values()) == 2


async def test_an_import_says_where_letters_came_from(store: LetterStore) -> None:
    letter = make_letter()

    await take_in_archive(store, archive_of(letter), BY, archive="a.jsonl")

    (entry,) = await store.audit(target=letter.id)
    assert entry.detail == "imported from a.jsonl"
    assert entry.actor == "anna"


async def test_nothing_claims_to_be_under_way(store: LetterStore) -> None:
    letter = make_letter(state=State.REPLAYING)
    lineage = Lineage(letter_id="x" * 24, generation=9, campaign="c")
    letter = structs.replace(letter, message=structs.replace(letter.message, lineage=lineage))

    (taken,) = read_letters(archive_of(letter))

    assert taken.head.state is State.PENDING
    assert taken.message.lineage is None


def changed(**head: Any) -> DeadLetter:
    letter = make_letter()
    return structs.replace(letter, head=structs.replace(letter.head, **head))


LINES = [
    (b"", "not the first line"),
    (b"{}", "not the first line"),
    (b"PK\x03\x04", "not the first line"),
    (b"\x1f\x8b\x08", "not the first line"),
    (b"\xff\xfe", "not the first line"),
    (
        b'{"format":"deadletter-letters","version":99,"exported_at":"2030-01-01T00:00:00Z"}',
        "version 99",
    ),
    (b'{"format":"other","version":1,"exported_at":"2030-01-01T00:00:00Z"}', "not the first line"),
]


@pytest.mark.parametrize(("line", "problem"), LINES)
def test_a_file_that_is_no_archive_is_refused(line: bytes, problem: str) -> None:
    first, *_ = problems(io.BytesIO(line))

    assert first.startswith("line 1: ")
    assert problem in first


HOSTILE = [
    changed(id="a" * 24),
    changed(source=""),
    changed(source="or\x1bders"),
    changed(message_id="other"),
    changed(attempts=10**30),
    changed(replays=-1),
    changed(error_text="x" * 100_000),
    changed(error_type="x" * 100_000),
    changed(fingerprint="x" * 2_000),
    changed(conflict=True),
    changed(dead_at=NOW.replace(tzinfo=None)),
    structs.replace(make_letter(), history="not json"),
    structs.replace(make_letter(), history='{"number":1}'),
    structs.replace(make_letter(), history="\n".join([make_letter().history] * 600)),
]


@pytest.mark.parametrize("letter", HOSTILE)
def test_a_forged_letter_is_refused_with_its_line(letter: DeadLetter) -> None:
    (problem,) = problems(archive_of(make_letter(7), letter))

    assert problem.startswith("line 3, letter ")


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"null",
        b"",
        b'{"head":{}}',
        b'{"sha256":"","letter":{}}',
        b"[" * 100_000,
        b'{"head":' * 50_000,
        b"\x00",
        b'{"head": 1e999}',
        b"../../etc/passwd",
    ],
)
def test_a_line_that_is_no_letter_is_refused(line: bytes) -> None:
    head, *rest = archive_of(make_letter()).getvalue().splitlines()
    file = io.BytesIO(b"\n".join([head, line, *rest, b""]))

    wrong, count = problems(file)

    assert wrong.startswith("line 2: ")
    assert count == "line 4: 1 letter was exported, 2 are here"
    file.seek(0)
    assert list(read_letters(file)) == [make_letter()]


def test_a_line_has_a_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(map(len, archive_of(make_letter()).getvalue().splitlines())) + 1
    monkeypatch.setattr(archive_reader, "LONGEST_LINE", longest)
    file = archive_of(make_letter(1), make_letter(2, body=b"x" * 5_000), make_letter(3))

    (problem,) = problems(file)

    assert problem.startswith("line 3: it is longer")
    file.seek(0)
    assert [one.head.message_id for one in read_letters(file)] == ["m-1", "m-3"]
