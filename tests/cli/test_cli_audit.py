"""dlq audit: list, head and seal, and what verify detects with and without a key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Command, RemoteCommand
from client.serving import served
from deadletter.core.access import Role
from deadletter.core.audit import seal
from deadletter.core.letter import AuditEntry
from deadletter.core.seals import PLAIN
from deadletter.stores.sqlite.sql import when
from office.making import make_letter

_KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DLQ_SIGNING_KEYS", _KEY)
    return _KEY


def _file(dlq: Command) -> Path:
    return Path(dlq.url.removeprefix("sqlite:///"))


def _resealed_without(dlq: Command, gone: int) -> None:
    """Remove an entry, and rewrite the rest of the audit with plain hashes."""
    with closing(sqlite3.connect(_file(dlq), isolation_level=None)) as connection:
        rows = connection.execute(
            "SELECT at, actor, action, target, reason, detail FROM audit"
            " WHERE seq <> ? ORDER BY seq",
            (gone,),
        ).fetchall()
        connection.execute("DELETE FROM audit")
        previous = ""
        for seq, row in enumerate(rows, 1):
            entry = _entry(seq, row)
            (sealed,) = seal([entry], seq=seq - 1, previous=previous, sealing=PLAIN)
            previous = sealed.hash
            connection.execute(
                "INSERT INTO audit (seq, at, actor, action, target, reason, detail,"
                " hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (seq, *row, previous),
            )
        connection.execute("UPDATE office SET audit_seq = ?, audit_hash = ?", (len(rows), previous))


def _entry(seq: int, row: tuple[object, ...]) -> AuditEntry:
    at, actor, action, target, reason, detail = row
    return AuditEntry(
        seq=seq,
        at=when(at),  # type: ignore[arg-type]
        actor=str(actor),
        action=str(action),
        target=str(target),
        reason=str(reason),
        detail=str(detail),
    )


def test_the_audit_lists_who_did_what_newest_first(dlq: Command) -> None:
    first, second = make_letter(1), make_letter(2)
    dlq.keep(first, second)
    dlq("review", first.id, "--reason", "looked")
    dlq("purge", second.id, "--reason", "a duplicate", "--yes")

    acts = dlq("audit", "--json").documents

    assert [act["action"] for act in acts][-2:] == ["purge", "move"]
    purges = dlq("audit", "--action", "purge", "--json").documents
    assert [(act["target"], act["reason"]) for act in purges] == [(second.id, "a duplicate")]
    assert dlq("audit", first.id, "--json").documents[0]["action"] == "move"
    assert dlq("audit", "--by", "nobody", "--json").documents == []
    assert dlq("audit", "--since", "1h", "--json").documents
    assert dlq("audit", "--since", "soon").code == 2
    assert "a duplicate" in dlq("audit").out


def test_an_audit_cut_and_sealed_anew_is_noticed_with_a_key(dlq: Command, key: str) -> None:
    letters = [make_letter(n) for n in (1, 2, 3)]
    dlq.keep(*letters)
    for letter in letters:
        dlq("review", letter.id, "--reason", "looked")
    assert dlq("verify").code == 0, dlq("verify").out

    _resealed_without(dlq, 2)

    ran = dlq("verify")
    assert ran.code == 6
    assert "sealed without the key" in ran.out


def test_without_a_key_verify_says_what_it_cannot_see(dlq: Command) -> None:
    letters = [make_letter(n) for n in (1, 2, 3)]
    dlq.keep(*letters)
    for letter in letters:
        dlq("review", letter.id, "--reason", "looked")

    _resealed_without(dlq, 2)

    ran = dlq("verify")
    assert ran.code == 0
    assert "No key is set" in ran.out


def test_an_anchor_shows_that_the_audit_was_cut_off(dlq: Command, tmp_path: Path) -> None:
    anchors = tmp_path / "anchors.log"
    letter = make_letter(1)
    dlq.keep(letter)
    dlq("review", letter.id)
    dlq("audit", "head", "--append", str(anchors))
    assert dlq("verify", "--anchors", str(anchors)).code == 0

    _resealed_without(dlq, 1)

    assert dlq("verify").code == 0
    ran = dlq("verify", "--anchors", str(anchors))
    assert ran.code == 6
    assert "was anchored" in ran.out


def test_old_letters_are_sealed_as_they_are(dlq: Command, key: str) -> None:
    dlq.keep(make_letter(1))
    with closing(sqlite3.connect(_file(dlq), isolation_level=None)) as connection:
        connection.execute("UPDATE letter_contents SET seal = NULL, story_seal = NULL")
    assert "digest of the old kind" in dlq("verify").out

    assert dlq("audit", "seal", "--reason", "upgrade").code == 0

    ran = dlq("verify")
    assert ran.code == 0
    assert "sealed later than they were filed" in ran.out
    assert "old kind" not in ran.out


def test_the_audit_through_a_server_is_the_same(dlq: Command, remote: RemoteCommand) -> None:
    first, second = make_letter(1), make_letter(2)
    dlq.keep(first, second)
    dlq("review", first.id, "--reason", "looked")
    dlq("purge", second.id, "--reason", "a duplicate", "--yes")

    for words in (
        ("audit",),
        ("audit", first.id),
        ("audit", "--action", "purge"),
        ("audit", "--by", "nobody"),
        ("audit", "--limit", "1"),
        ("audit", "head"),
    ):
        for form in ((), ("--json",)):
            here, asked = dlq(*form, *words), remote.unnamed(*form, *words)
            assert here.code == 0
            assert asked == here, words
    sealing = remote("audit", "seal")
    assert sealing.code == 2
    assert "--server" in sealing.err


def test_the_audit_through_a_server_shows_what_the_token_may_see(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, returns = make_letter(1), make_letter(2, source="returns")
    dlq.keep(orders, returns)
    for letter in (orders, returns):
        dlq("review", letter.id, "--reason", "looked")
    # As if others' entries were so many that a request does not get past them.
    monkeypatch.setattr("deadletter.server.acting.office_views.STEP", 1)
    monkeypatch.setattr("deadletter.server.acting.office_views.STEPS", 1)

    with served(dlq.url, access="on") as server:
        remote = RemoteCommand(dlq, server.url)
        refused = remote("audit")
        assert refused.code != 0
        assert "token" in refused.err

        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.READER, "returns"))
        seen = remote("audit", "--json").documents
        assert [act["target"] for act in seen if act["action"] == "move"] == [returns.id]
        assert orders.id not in {act["target"] for act in seen}

        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.READER))
        seen = remote("audit", "--action", "move", "--json").documents
        assert [act["target"] for act in seen] == [returns.id, orders.id]


def test_verify_goes_by_the_anchors_that_the_settings_name(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchors = tmp_path / "anchors.log"
    monkeypatch.setenv("DLQ_ANCHORS_FILE", str(anchors))
    letter = make_letter(1)
    dlq.keep(letter)
    dlq("review", letter.id)
    ran = dlq("verify")
    assert ran.code == 0
    assert "The file of anchors in the settings" in " ".join(ran.out.split())
    dlq("audit", "head", "--append", str(anchors))
    assert dlq("verify").code == 0

    _resealed_without(dlq, 1)

    ran = dlq("verify")
    assert ran.code == 6
    assert "was anchored" in ran.out


def test_purges_are_in_the_audit_without_what_was_purged(dlq: Command) -> None:
    letter = make_letter(1, body=b'{"card": "4111"}')
    dlq.keep(letter)
    dlq("purge", letter.id, "--reason", "asked to", "--yes")

    (purge,) = dlq("audit", "--action", "purge", "--json").documents

    assert (purge["target"], purge["reason"]) == (letter.id, "asked to")
    assert "4111" not in str(purge)
    assert dlq("verify").code == 0


def test_a_test_of_a_masked_message_is_no_reveal(dlq: Command, tmp_path: Path) -> None:
    letter = make_letter(1)
    dlq.keep(letter)

    dlq("repro", letter.id, "shop:app", "--into", str(tmp_path / "masked"))
    assert not dlq("audit", "--action", "reveal", "--json").documents

    into = str(tmp_path / "bare")
    dlq("repro", letter.id, "shop:app", "--into", into, "--reveal")
    assert dlq("audit", "--action", "reveal", "--json").documents
