"""`dlq --server`: the same commands and output through a server."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command, RemoteCommand
from client.serving import Served, served
from deadletter.client import Client
from deadletter.core.access import Role
from deadletter.core.errors import Unavailable
from deadletter.core.letter import DeadLetter, State
from deadletter.core.text import many
from deadletter.office.archive_import import TakenIn
from deadletter.testing.fakes import eventually
from office.making import make_letter, make_letters

pytestmark = pytest.mark.slow


@pytest.fixture
def letters(dlq: Command) -> list[DeadLetter]:
    letters = [
        *make_letters(4),
        make_letter(7, source="returns", headers={"token": "x"}, body=b'{"a": [1]}'),
    ]
    dlq.keep(*letters)
    return letters


def state_of(dlq: Command, letter: DeadLetter) -> State:
    (found,) = dlq.do(lambda engine: engine.letters.get([letter.id]))
    assert isinstance(found, DeadLetter)
    return found.head.state


def test_looking_through_a_server_shows_the_same(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    dlq("close", letters[0].id)
    for words in (
        ("list",),
        ("list", "source:orders", "-n", "2"),
        ("groups",),
        ("stats",),
        ("queues",),
        (),
        ("show", letters[-1].id),
        ("replay", "plan", "*"),
        ("replay", "plan", "*", "--letters"),
        ("replay", "plan", "*", "--letters", "--limit", "2"),
    ):
        for form in ((), ("--json",)):
            here, asked = dlq(*form, *words), remote.unnamed(*form, *words)
            assert (here.code, bool(here.out)) == (0, True)
            assert asked == here, words
    assert remote("--json", "replay", "status") == dlq("--json", "replay", "status")


def test_an_error_through_a_server_is_the_same_error(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    for words in (
        ("list", "age:<banana"),
        ("show", "aaaaaaaa"),
        ("groups", "show", "nope"),
        ("review", "source:nowhere"),
        ("replay", "status", "nope"),
        ("queues", "delete", "nowhere", "--yes"),
    ):
        here, asked = dlq(*words), remote(*words)
        assert here.code != 0
        assert asked == here


def test_decisions_through_a_server_are_applied(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    one, two, three, four, _ = (letter.id for letter in letters)

    assert remote("review", one, two, "--reason", "seen").out == "2 letters reviewed.\n"
    assert remote("note", "ask Bo", one).code == 0
    assert remote("close", "is:reviewed").out == "2 letters closed.\n"
    assert remote("reopen", one).code == 0
    assert remote("discard", three, four, "--yes").code == 0
    assert remote("restore", three).code == 0
    assert remote("purge", four, "--yes", "--reason", "gone").code == 0

    states = [state_of(dlq, letter) for letter in letters[:3]]
    assert states == [State.PENDING, State.CLOSED, State.PENDING]
    page = dlq("show", one).out
    assert "local reviewed it, because: seen" in page
    assert "local noted: ask Bo" in page
    refused = remote("review", two)
    assert (refused.code, refused.err) == (4, "dlq: nothing was reviewed\n")
    assert "is closed" in refused.out


def test_a_replay_through_a_server_is_sent_by_it(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    ran = remote("replay", "source:orders", "--reason", "fixed", "--json")

    assert ran.code == 0
    campaign = ran.documents[-1]
    assert campaign["state"] == "running"
    assert campaign["counts"] == {"sent": 4}
    assert campaign["reason"] == "fixed"
    assert state_of(dlq, letters[0]) is State.REPLAYING
    queues = {one["options"]["name"]: one for one in dlq("--json", "queues").documents}
    assert queues["orders"]["ready"] == 6


def test_a_dry_run_through_a_server_leaves_nothing_behind(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    ran = remote("replay", "*", "--dry-run")

    assert "5 letters would be sent" in ran.out
    assert [one["state"] for one in dlq("--json", "replay", "status").documents] == ["cancelled"]


def test_a_plan_through_a_server_lists_each_letter(
    remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    found = remote("--json", "replay", "plan", "*", "--letters").documents

    assert {one["letter_id"] for one in found} == {one.id for one in letters}
    assert {one["verdict"] for one in found} >= {"ready"}


def test_a_server_reports_letters_that_await_an_outcome(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    assert remote("replay", letters[0].id).code == 0

    assert "1 letter waits for the outcome of a replay" in remote().out
    assert "1 letter waits for the outcome of a replay" in remote("stats").out
    assert remote("close", letters[0].id).code == 4
    assert remote("close", letters[0].id, "--unconfirmed").code == 0
    assert state_of(dlq, letters[0]) is State.CLOSED


def test_a_replay_planned_through_a_server_is_resumed_and_cancelled(
    remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    planned = remote("--json", "replay", "start", "source:orders").document
    other = remote("--json", "replay", "start", letters[-1].id).document

    refused = remote("replay", "resume", planned["id"], "--rate", "3")
    resumed = remote("--json", "replay", "resume", planned["id"])
    cancelled = remote("--json", "replay", "cancel", other["id"])

    assert planned["state"] == other["state"] == "planned"
    assert "keeps the planned rate" in refused.err
    assert resumed.document["counts"] == {"sent": 4}
    assert cancelled.document["state"] == "cancelled"


def test_an_edit_through_a_server_shows_the_difference(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter], tmp_path: Path
) -> None:
    (tmp_path / "new").write_bytes(b'{"a": [2]}')
    letter = letters[-1]

    ran = remote("edit", letter.id, "--body", str(tmp_path / "new"), "--yes")

    assert "-     1" in ran.out
    assert "+     2" in ran.out
    assert dlq("show", letter.id) == remote.unnamed("show", letter.id)
    revealed = remote("--json", "show", letter.id, "--reveal").document
    assert revealed == dlq("--json", "show", letter.id, "--reveal").document | {
        "story": revealed["story"]
    }


@pytest.mark.slow
def test_groups_and_mailboxes_are_changed_through_a_server(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter]
) -> None:
    group = dlq("--json", "groups").documents[0]["fingerprint"]

    assert remote("groups", "resolve", group, "--in", "1.8", "--reason", "r").code == 0
    assert dlq("groups", "show", group) == remote("groups", "show", group)
    assert remote("queues", "create", "dead").code == 0
    assert remote("queues", "update", "orders", "--dead-queue", "dead").code == 0
    assert dlq("queues") == remote("queues")
    assert remote("queues", "delete", "orders", "--yes").out.startswith("Mailbox orders")


def test_letters_are_exported_through_a_server(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter], tmp_path: Path
) -> None:
    for form in ("jsonl", "csv"):
        files = [tmp_path / f"here.{form}", tmp_path / f"there.{form}"]
        for ask, file in zip((dlq, remote), files, strict=True):
            ran = ask("export", "--format", form, "--out", str(file))
            assert (ran.code, ran.out) == (0, f"5 letters written to {file}.\n")
        here, asked = (file.read_bytes().split(b"\n") for file in files)
        # The time of the export is in the first line, and so in the last.
        assert here[1:-2] == asked[1:-2]


def test_very_long_and_odd_ids_are_found_through_a_server(
    dlq: Command, remote: RemoteCommand
) -> None:
    letters = [
        make_letter(number, message_id=id_)
        for number, id_ in enumerate(["x" * 8192, "a\0b", "m-\udc80"])
    ]
    dlq.keep(*letters)

    for letter, text in zip(letters, ["x" * 8192, r"a\u0000b", r"m-\udc80"], strict=True):
        (found,) = remote("--json", "list", f'message:"{text}"').documents
        assert found["id"] == letter.id
    too_long = remote("list", f'message:"{"x" * 70_000}"')
    assert too_long.code == 2
    assert "65,536" in too_long.err


@pytest.mark.slow
def test_an_archive_is_imported_through_a_server_in_portions(
    dlq: Command,
    remote: RemoteCommand,
    letters: list[DeadLetter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deadletter.client.office._PORTION", 3_000)
    file = tmp_path / "letters.jsonl"
    dlq("export", "--out", str(file))
    dlq("purge", *(letter.id for letter in letters[1:]), "--yes", "--reason", "test")

    ran = remote("import", str(file))
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))

    assert ran.out.splitlines() == [
        "4 letters imported from letters.jsonl.",
        "1 letter not changed: already here.",
    ]
    refused = remote("import", str(broken))
    assert refused.code == 2
    assert "line 6: the last line is missing" in refused.err
    assert remote("import", str(broken), "--salvage").code == 6


@pytest.mark.slow
def test_an_archive_of_which_the_server_rejects_a_part_is_left_alone(
    dlq: Command, letters: list[DeadLetter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.client.office._PORTION", 3_000)
    file = tmp_path / "letters.jsonl"
    other = make_letter(50, source="refunds", died=timedelta(days=9))
    dlq.keep(other)  # at the end of the archive, which is in order of death
    dlq("export", "--out", str(file))
    dlq("purge", *(one.id for one in [*letters, other]), "--yes", "--reason", "test")
    with served(dlq.url, access="on") as server:
        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.ADMIN, "orders", "returns"))
        ran = RemoteCommand(dlq, server.url)("import", str(file))

    assert ran.code == 2
    assert "its mailbox is one that your token does not see" in ran.err
    assert dlq("--json", "list").documents == []


@pytest.mark.slow
def test_an_import_that_stops_says_what_was_taken_and_goes_on_when_run_again(
    dlq: Command,
    remote: RemoteCommand,
    letters: list[DeadLetter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deadletter.client.office._PORTION", 3_000)
    file = tmp_path / "letters.jsonl"
    dlq("export", "--out", str(file))
    dlq("purge", *(letter.id for letter in letters), "--yes", "--reason", "test")
    imported = Client.import_
    taken = 0

    async def interrupted(client: Client, lines: bytes, **wish: Any) -> TakenIn:
        nonlocal taken
        if taken and not wish.get("dry_run"):
            raise Unavailable("the server is away")
        found = await imported(client, lines, **wish)
        taken += found.added
        return found

    monkeypatch.setattr(Client, "import_", interrupted)
    ran = remote("import", str(file))
    monkeypatch.setattr(Client, "import_", imported)

    assert ran.code == 5
    said = f"{taken} letters were taken in before, 0 were here already: import the same"
    assert 0 < taken < 5
    assert said.replace("1 letters were", "1 letter was") in ran.err
    assert remote("import", str(file)).out.splitlines() == [
        f"{many(5 - taken, 'letter')} imported from letters.jsonl.",
        f"{many(taken, 'letter')} not changed: already here.",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("doctor",),
        ("send", "orders", "{}"),
        ("retention",),
        ("retention", "run", "--yes"),
        ("work", "shop:app"),
    ],
)
def test_commands_that_need_the_engine_say_so(dlq: Command, words: tuple[str, ...]) -> None:
    ran = dlq("--server", "http://127.0.0.1:1", *words)

    assert ran.code == 2
    assert "where the engine is" in ran.err


def test_a_server_sends_through_servers_that_its_settings_name(dlq: Command) -> None:
    remote = ("--server", "http://127.0.0.1:1")
    ran = dlq(*remote, "replay", "*", "--through", "redis://:hunter2@127.0.0.1:1")

    assert ran.code == 2
    assert "[sources.NAME]" in ran.err
    assert "hunter2" not in ran.err


def test_a_server_can_be_named_in_the_environment(
    dlq: Command, server: Served, letters: list[DeadLetter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_SERVER", server.url)
    monkeypatch.setenv("DLQ_URL", "sqlite:///nowhere.db")

    assert len(dlq("--json", "list").documents) == 5
    assert dlq("--url", "sqlite:///nowhere.db", "list").code == 3
    assert "give one" in dlq("--url", "memory://", "--server", server.url, "list").err


def test_a_server_that_is_not_there_is_told(dlq: Command) -> None:
    async def quick(_: float) -> None:
        """Return immediately."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deadletter.client.connection.asyncio.sleep", quick)
        ran = dlq("--server", "http://127.0.0.1:1", "list")

        unnamed = dlq("queues", "lent")

    assert ran.code == unnamed.code == 5
    assert "http://127.0.0.1:1" in ran.err
    assert "http://127.0.0.1:8418" in unnamed.err
    for said in (ran.err, unnamed.err):
        assert "start a server with `dlq serve`, or name another one with --server" in said


def test_a_wrong_address_of_a_server_is_told(dlq: Command, server: Served) -> None:
    for words in (["list"], ["queues", "lent"]):
        ran = dlq("--server", f"{server.url}/wrong", *words)

        assert ran.code == 2
        assert f"{server.url}/wrong/" in ran.err


@pytest.mark.slow
def test_the_token_comes_from_the_environment_or_a_private_file(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = make_letter()
    dlq.keep(letter)
    file = tmp_path / "token"
    with served(dlq.url, access="on") as server:
        ask = RemoteCommand(dlq, server.url)
        file.write_text(server.token(Role.OPERATOR, name="bo") + "\n")
        nobody = ask("list")
        file.chmod(0o644)
        monkeypatch.setenv("DLQ_TOKEN_FILE", str(file))
        open_to_all = ask("list")
        file.chmod(0o600)
        somebody = ask("review", letter.id)
        monkeypatch.setenv("DLQ_TOKEN", "dlq_wrong")
        wrong = ask("list")

    assert (nobody.code, somebody.code, wrong.code) == (5, 0, 5)
    assert "the command reads it from DLQ_TOKEN" in nobody.err
    assert "the command reads it from DLQ_TOKEN" in wrong.err
    assert "chmod 600" in open_to_all.err
    assert "dlq_wrong" not in wrong.err
    assert "bo reviewed it" in dlq("show", letter.id).out


@pytest.mark.parametrize("token", ["dlq_a\nSECRET", "a SECRET", "ünïSECRET"])
def test_a_token_that_cannot_be_is_not_shown_but_where_it_is(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    ask = RemoteCommand(dlq, "http://127.0.0.1:1")

    monkeypatch.setenv("DLQ_TOKEN_FILE", str(file))
    in_file = ask("list")
    monkeypatch.setenv("DLQ_TOKEN", token)
    in_variable = ask("list")

    assert in_file.code == in_variable.code == 2
    assert f"{file} does not contain a valid token" in in_file.err
    assert "DLQ_TOKEN does not contain a valid token" in in_variable.err
    assert "SECRET" not in in_file.err + in_variable.err


def test_an_actor_cannot_be_claimed_to_a_server(dlq: Command) -> None:
    ran = dlq("--server", "http://127.0.0.1:1", "--actor", "eve", "list")

    assert "the token identifies you" in ran.err


@pytest.mark.slow
def test_interrupted_it_pauses_what_the_server_sends(
    dlq: Command, server: Served, letters: list[DeadLetter]
) -> None:
    async def interrupted() -> tuple[int | None, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deadletter.cli", "--server", server.url),
            *("replay", "source:orders", "--rate", "0.01", "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        await eventually(lambda: _is_running(server), within=30)
        process.terminate()
        out, _ = await process.communicate()
        return process.returncode, out

    code, out = asyncio.run(interrupted())

    assert code == 130
    assert b'"paused"' in out


async def _is_running(server: Served) -> bool:
    async def look() -> bool:
        return any(
            one.state == "running" for one in await server.context.office.replays.sender.latest()
        )

    return await asyncio.to_thread(server.run, look())
