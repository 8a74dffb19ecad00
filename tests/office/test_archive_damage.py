"""Archives that are cut, thinned out or changed: found before a letter is taken."""

import io
import json
from collections.abc import Callable

import msgspec
import pytest

from deadletter.core.errors import Unavailable
from deadletter.core.letter import DeadLetter
from deadletter.office.archive import ArchiveHead, Checkup, Damaged, SealCheck, check, write_archive
from deadletter.office.archive_import import TakenIn, take_in_archive
from deadletter.ports import LetterStore
from office.making import BY, NOW, make_letter, make_letters
from office.test_archive import HEAD, archive_of

Lines = list[bytes]


def _without_header(lines: Lines) -> Lines:
    return lines[1:]


def _changed_text(lines: Lines) -> Lines:
    return [line.replace(b"refused", b"accepted") for line in lines]


def _exchanged(lines: Lines) -> Lines:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def _other_header(lines: Lines) -> Lines:
    return [lines[0].replace(b"2030", b"2031"), *lines[1:]]


def _one_flipped_bit(lines: Lines) -> Lines:
    line = bytearray(lines[7])
    line[len(line) // 2] ^= 1
    return [*lines[:7], bytes(line), *lines[8:]]


DAMAGE: dict[str, tuple[Callable[[Lines], Lines], str, int]] = {
    "cut after 10 lines": (lambda lines: lines[:10], "the last line is missing", 9),
    "cut within a line": (
        lambda lines: [*lines[:10], lines[10][:200]],
        "the file was cut off here",
        9,
    ),
    "no last line": (lambda lines: lines[:-1], "the last line is missing", 20),
    "5 lines removed": (
        lambda lines: lines[:5] + lines[10:],
        "20 letters were exported, 15 are here",
        15,
    ),
    "a line twice": (lambda lines: [*lines[:2], *lines[1:]], "21 are here", 21),
    "an error text changed": (_changed_text, "its checksum does not match", 0),
    "two lines exchanged": (_exchanged, "the digest of the lines above", 20),
    "another header": (_other_header, "the digest of the lines above", 20),
    "no header": (_without_header, "not the first line of an archive", 20),
    "a flipped bit": (_one_flipped_bit, "line 8", 19),
    "lines behind the end": (lambda lines: lines * 2, "behind the end", 20),
    "Windows line ends": (
        lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
        "the digest of the lines above",
        20,
    ),
    "only a header": (lambda lines: lines[:1], "the last line is missing", 0),
    "nothing": (lambda _: [], "not the first line of an archive", 0),
}


@pytest.fixture
def letters() -> list[DeadLetter]:
    return make_letters(20, error_text="connection refused")


@pytest.fixture(params=DAMAGE)
def damage(
    request: pytest.FixtureRequest, letters: list[DeadLetter]
) -> tuple[io.BytesIO, str, int]:
    change, problem, intact = DAMAGE[request.param]
    lines = archive_of(*letters).getvalue().splitlines(keepends=True)
    return io.BytesIO(b"".join(change(lines))), problem, intact


async def test_nothing_of_a_damaged_archive_is_taken(
    store: LetterStore, damage: tuple[io.BytesIO, str, int]
) -> None:
    file, problem, intact = damage

    with pytest.raises(Damaged) as raised:
        await take_in_archive(store, file, BY, archive="a.jsonl")

    assert problem in str(raised.value)
    assert ("--salvage" in str(raised.value)) == (intact > 0)
    assert await store.counts() == {}
    assert await store.audit() == []


async def test_the_intact_letters_of_a_damaged_archive_can_be_salvaged(
    store: LetterStore, damage: tuple[io.BytesIO, str, int]
) -> None:
    file, problem, intact = damage

    taken = await take_in_archive(store, file, BY, archive="a.jsonl", salvage=True)

    assert taken.added + taken.known == intact
    assert taken.wrong
    assert any(problem in str(one) for one in taken.problems)
    assert sum(sum(one.values()) for one in (await store.counts()).values()) == min(intact, 20)


def test_problems_are_counted_and_the_first_are_named() -> None:
    lines = archive_of(*make_letters(50)).getvalue().splitlines(keepends=True)
    wrong = [line.replace(b'"letter":{', b'"letter": {') for line in lines]

    checkup = check(io.BytesIO(b"".join(wrong)))

    assert checkup.intact == 50  # white space is none of the letter
    for line in range(1, 51):
        wrong[line] = wrong[line].replace(b'"orders"', b'"others"')
    checkup = check(io.BytesIO(b"".join(wrong)))
    assert (checkup.intact, checkup.wrong, len(checkup.problems)) == (0, 50, 20)
    assert "... and 30 more" in str(Damaged(checkup))
    assert checkup.problems[0].letter == make_letters(50)[0].id


async def test_archives_without_checksums_are_not_taken_silently(store: LetterStore) -> None:
    letters = make_letters(3)
    head = {"format": "deadletter-letters", "version": 1, "exported_at": NOW}
    lines = [msgspec.json.encode(one) + b"\n" for one in (head, *letters)]
    file = io.BytesIO(b"".join([*lines, b"\n"]))

    with pytest.raises(Damaged, match=r"without checksums.*\n.*3 intact.*--salvage"):
        await take_in_archive(store, file, BY, archive="a.jsonl")
    assert await store.counts() == {}
    file.seek(0)
    taken = await take_in_archive(store, file, BY, archive="a.jsonl", salvage=True)

    assert (taken.added, taken.wrong) == (3, 1)


async def test_an_archive_says_what_it_is_and_holds_plain_json(store: LetterStore) -> None:
    letters = make_letters(2)
    await store.keep(letters)
    file = io.BytesIO()
    head = ArchiveHead(exported_at=NOW, engine="sqlite", query="is:pending")

    await write_archive(store, [one.id for one in letters], file, head)

    first, *middle, last = map(json.loads, file.getvalue().splitlines())
    assert first == {
        "format": "deadletter-letters",
        "version": 2,
        "exported_at": NOW.isoformat().replace("+00:00", "Z"),
        "engine": "sqlite",
        "query": "is:pending",
    }
    assert [one["letter"]["head"]["id"] for one in middle] == [letter.id for letter in letters]
    assert last["letters"] == 2
    file.seek(0)
    assert check(file) == Checkup(intact=2)


async def test_letters_with_half_a_character_are_exported_exactly(store: LetterStore) -> None:
    odd = [
        make_letter(1, message_id="a\udc80\0\ufdd0"),
        make_letter(2, message_id="\ufdd0dc80", key="k\udfff"),
        make_letter(3, headers={"h\ud800": b"\xff"}, content_type="t\udc80"),
    ]
    await store.keep(odd)
    file = io.BytesIO()
    await write_archive(store, [one.id for one in odd], file, HEAD)
    await store.purge([one.id for one in odd], BY)
    file.seek(0)

    taken = await take_in_archive(store, file, BY, archive="a.jsonl")

    assert taken == TakenIn(added=3)
    back = await store.get([one.id for one in odd])
    assert [one.message for one in back] == [one.message for one in odd]


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
def test_an_export_that_arrives_in_pieces_is_checked(size: int) -> None:
    archive = archive_of(*make_letters(5)).getvalue()

    def fed(data: bytes) -> SealCheck:
        seal = SealCheck()
        for at in range(0, len(data), size):
            seal.feed(data[at : at + size])
        return seal

    assert fed(archive).letters() == 5
    lines = archive.splitlines(keepends=True)
    for broken in (
        b"",
        archive[:-1],
        b"".join(lines[:-1]),
        b"".join([*lines[:2], *lines[3:]]),
        archive.replace(b"m-3", b"m-9"),
        lines[-1],
    ):
        with pytest.raises(Unavailable, match="export again"):
            fed(broken).letters()
