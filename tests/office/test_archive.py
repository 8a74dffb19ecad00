import io
from typing import Any

import msgspec
import pytest
from msgspec import structs

from deadletter.core.errors import ConfigError
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Lineage
from deadletter.office import archive
from deadletter.office.archive import (
    FORMAT,
    VERSION,
    ArchiveHead,
    open_archive,
    write_archive,
)
from deadletter.office.taking_in import TakenIn, take_in
from deadletter.ports import LetterStore
from office.making import BY, NOW, make_letter, make_letters

HEAD = ArchiveHead(format=FORMAT, version=VERSION, exported_at=NOW)


def archive_of(*letters: DeadLetter, head: object = HEAD) -> io.BytesIO:
    lines = [msgspec.json.encode(one) + b"\n" for one in (head, *letters)]
    return io.BytesIO(b"".join(lines))


async def test_what_is_exported_is_imported_byte_for_byte(
    store: LetterStore,
) -> None:
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

    result = await take_in(store, open_archive(file), BY, archive="a.jsonl")

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

    result = await take_in(store, open_archive(file), BY, archive="a.jsonl")

    assert result == TakenIn(added=0, known=1)
    assert (await store.get([letter.id]))[0] == before


async def test_another_body_under_a_known_id_is_kept_apart(store: LetterStore) -> None:
    here, other = make_letter(body=b"one"), make_letter(body=b"two")
    await store.keep([here])

    for _ in range(2):  # the second time it is known
        await take_in(store, open_archive(archive_of(other)), BY, archive="a")

    apart = letter_id("orders", "", "m-1", body_digest(b"two"))
    bodies = [one.message.body for one in await store.get([here.id, apart])]
    assert bodies == [b"one", b"two"]
    assert sum((await store.counts())["orders"].values()) == 2


async def test_an_import_says_where_letters_came_from(store: LetterStore) -> None:
    letter = make_letter()

    await take_in(store, open_archive(archive_of(letter)), BY, archive="a.jsonl")

    (entry,) = await store.audit(target=letter.id)
    assert entry.detail == "imported from a.jsonl"
    assert entry.actor == "anna"


async def test_nothing_claims_to_be_under_way(store: LetterStore) -> None:
    letter = make_letter(state=State.REPLAYING)
    lineage = Lineage(letter_id="x" * 24, generation=9, campaign="c")
    letter = structs.replace(
        letter, message=structs.replace(letter.message, lineage=lineage)
    )

    (taken,) = open_archive(archive_of(letter))

    assert taken.head.state is State.PENDING
    assert taken.message.lineage is None


def changed(**head: Any) -> DeadLetter:
    letter = make_letter()
    return structs.replace(letter, head=structs.replace(letter.head, **head))


LINES = [
    (b"", "not an archive"),
    (b"{}", "not an archive"),
    (b"PK\x03\x04", "not an archive"),
    (b"\x1f\x8b\x08", "not an archive"),
    (b"\xff\xfe", "not an archive"),
    (
        b'{"format":"deadletter-letters","version":99,"exported_at":"2030-01-01T00:00:00Z"}',
        "format 99",
    ),
    (
        b'{"format":"other","version":1,"exported_at":"2030-01-01T00:00:00Z"}',
        "not an archive",
    ),
]


@pytest.mark.parametrize(("line", "problem"), LINES)
def test_a_file_that_is_no_archive_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"line 1: .*{problem}"):
        list(open_archive(io.BytesIO(line)))


HOSTILE = [
    changed(id="a" * 24),
    changed(source=""),
    changed(source="or\x1bders"),
    changed(message_id="other"),
    changed(attempts=10**30),
    changed(replays=-1),
    changed(error_text="x" * 100_000),
    changed(error_type="x" * 2_000),
    changed(conflict=True),
    changed(dead_at=NOW.replace(tzinfo=None)),
    structs.replace(make_letter(), history="not json"),
    structs.replace(make_letter(), history='{"number":1}'),
    structs.replace(make_letter(), history="\n".join([make_letter().history] * 600)),
]


@pytest.mark.parametrize("letter", HOSTILE)
def test_a_forged_letter_is_refused_with_its_line(letter: DeadLetter) -> None:
    file = archive_of(make_letter(7), letter)

    with pytest.raises(ConfigError, match="line 3: "):
        list(open_archive(file))


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"null",
        b'{"head":{}}',
        b"[" * 100_000,
        b'{"head":' * 50_000,
        b"\x00",
        b'{"head": 1e999}',
        b"../../etc/passwd",
    ],
)
def test_a_line_that_is_no_letter_is_refused(line: bytes) -> None:
    file = io.BytesIO(archive_of().getvalue() + line)

    with pytest.raises(ConfigError, match="line 2: "):
        list(open_archive(file))


def test_a_line_has_a_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LONGEST_LINE", 1024)
    file = io.BytesIO(archive_of().getvalue() + b"x" * 5_000)

    with pytest.raises(ConfigError, match="line 2: it is longer"):
        list(open_archive(file))


def test_empty_lines_are_passed_over() -> None:
    file = io.BytesIO(archive_of().getvalue() + b"\n\n")

    assert list(open_archive(file)) == []
