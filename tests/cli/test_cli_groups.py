"""dlq groups: the status of a group, and regressions."""

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from cli.conftest import Command, Ran, RemoteCommand
from deadletter.cli.desk import Desk
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Lineage
from office.making import make_letter

NAME = "2-63085a168bb799e5"


def recent(number: int = 1, **different: Any) -> DeadLetter:
    given = {"fingerprint": NAME, "died": timedelta(minutes=3)} | different
    return make_letter(number, now=datetime.now(UTC), **given)


def test_a_group_somebody_knows_of_shows_who_and_why(dlq: Command) -> None:
    dlq.keep(recent())

    said = dlq(
        *("groups", "ack", NAME, "--owner", "bo", "--reason", "the bank knows"),
        *("--actor", "anna"),
    )
    listed = dlq("groups")
    shown = dlq("groups", "show", f"group:{NAME[:6]}*")

    assert said.code == 0, said.err
    assert f"{NAME} is ongoing (bo): TimeoutError" in said.out
    assert "ongoing (bo)" in listed.out
    assert "the bank knows" in shown.out
    assert "anna new to ongoing, owner bo, because: the bank knows" in shown.out


def test_a_resolved_group_that_dies_again_is_regressed(dlq: Command) -> None:
    dlq.keep(recent())
    resolved = dlq("groups", "resolve", NAME, "--in", "1.8", "--json").document

    dlq.keep(recent(2, version="1.7.9", died=timedelta(seconds=-1)))
    older = dlq("groups", "--status", "resolved", "--json").document
    dlq.keep(recent(3, version="1.8.0", died=timedelta(seconds=-1)))
    regressed = dlq("groups", "--status", "regressed", "--json").document

    assert (resolved["status"], resolved["version"]) == ("resolved", "1.8")
    assert older["total"] == 2
    assert (regressed["status"], regressed["total"]) == ("regressed", 3)
    story = dlq("groups", "show", NAME, "--json").document
    assert [entry["action"] for entry in story["said"]] == ["group", "regress"]
    assert dlq("verify").code == 0


def test_a_group_counts_open_letters_and_deaths(dlq: Command) -> None:
    dlq.keep(recent(1), recent(2))
    replay = dlq("replay", "*", "--json").document["id"]
    again = recent(1, died=timedelta(seconds=-1))
    lineage = Lineage(letter_id=again.id, generation=1, campaign=replay)
    copy = structs.replace(again.message, lineage=lineage)

    dlq.keep(structs.replace(again, message=copy))

    shown = dlq("groups", "show", NAME).out
    assert "1 open, 3 deaths" in shown, shown


def test_snoozed_and_muted_groups_are_not_listed(dlq: Command) -> None:
    dlq.keep(recent(), recent(2, fingerprint="1-b"))

    dlq("groups", "snooze", NAME, "--for", "7d")
    dlq("groups", "mute", "1-b", "--reason", "a test customer")

    assert "No groups with open letters" in dlq("groups").out
    assert "snoozed until" in dlq("groups", "--status", "snoozed").out
    assert len(dlq("groups", "--all", "--json").documents) == 2
    assert "No group is new." in dlq("groups", "--status", "new").out


@pytest.mark.parametrize("span", ["soon", "0d", "999999999w", "-1d", "367d"])
def test_a_snooze_has_an_end_one_can_mean(dlq: Command, span: str) -> None:
    dlq.keep(recent())

    ran = dlq("groups", "snooze", NAME, f"--for={span}")

    assert ran.code == 2
    assert "7d" in ran.err
    assert dlq("groups", "--json").document["status"] == "new"


def test_a_group_that_is_not_there_is_not_found(dlq: Command) -> None:
    dlq.keep(recent())

    assert dlq("groups", "ack", "1-ffff").code == 3
    assert dlq("groups", "show", "1-ffff").code == 3
    assert dlq("groups", "mute").code == 2


def test_resolving_a_group_suggests_the_next_command(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq.keep(recent())
    monkeypatch.setattr(Desk, "is_watched", True)

    ran = dlq("groups", "resolve", NAME)

    assert f"1 letter of the group still open: dlq replay group:{NAME}" in ran.err


def test_hostile_text_in_a_group_is_escaped(dlq: Command) -> None:
    dlq.keep(recent(error_text="\x1b[2J", fingerprint="1-\x1b]0;x\x07"))
    dlq("groups", "ack", "1-", "--reason", "\x1b[31m", "--owner", "\x9b1m")

    for words in (["groups"], ["groups", "show", "1-"], ["groups", "--json"]):
        ran = dlq(*words)
        assert ran.code == 0, ran.err
        assert not {"\x1b", "\x9b", "\x07"} & set(ran.out)


def test_long_lists_go_on_where_they_say(dlq: Command) -> None:
    names = [f"1-{n:03}" for n in range(30)]
    dlq.keep(*(recent(n, fingerprint=name) for n, name in enumerate(names)))

    first = dlq("groups")
    options = shlex.split(first.err.partition("There is more: dlq ")[2])
    second = dlq(*options)

    shown = [name for name in names if name in first.out]
    rest = [name for name in names if name in second.out]
    assert (len(shown), len(rest)) == (25, 5)
    assert sorted(shown + rest) == names
    assert "There is more" not in second.err


def test_as_json_all_groups_are_told_unless_so_many_are_asked_for(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.cli.ui.PAGE", 4)
    names = [f"1-{n:03}" for n in range(30)]
    dlq.keep(*(recent(n, fingerprint=name) for n, name in enumerate(names)))
    asked = ("groups", "--json", "--source", "orders", "--all")

    everything = dlq(*asked)
    some = dlq(*asked, "-n", "10")
    options = shlex.split(some.err.partition("There is more: dlq ")[2])
    more = dlq(*options)

    def told(ran: Ran) -> list[str]:
        return [line["fingerprint"] for line in ran.documents]

    assert (len(told(everything)), everything.err) == (30, "")
    assert told(some) == told(everything)[:10]
    assert told(more) == told(everything)[10:20]
    assert {"--json", "--all", "--source"} < set(options)


def test_a_list_goes_on_only_where_one_ended(dlq: Command) -> None:
    dlq.keep(recent())

    done = dlq("groups", "--after", "somewhere")

    assert done.code == 2
    assert "not a valid cursor" in done.err


@pytest.mark.parametrize("width", [42, 50, 53, 60, 61, 71, 72, 99, 100])
def test_the_name_of_a_group_can_be_typed_however_narrow_the_terminal_is(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    dlq.keep(
        make_letter(source="orders-in-europe-dlq", fingerprint=NAME),
        make_letter(2, source="orders-in-europe", fingerprint="1-b"),
    )
    monkeypatch.setenv("COLUMNS", str(width))

    fresh = dlq("groups").out
    dlq("groups", "ack", "1-b", "--owner", "somebody")
    known = dlq("groups").out

    for out in (fresh, known):
        (name,) = [word for word in out.split() if word.startswith(NAME[:6])]
        assert dlq("list", f"group:{name}", "--json").document["fingerprint"] == NAME


def test_groups_are_merged_listed_and_put_back(dlq: Command) -> None:
    dlq.keep(recent(), recent(2, fingerprint="2-other"))

    merged = dlq("groups", "merge", NAME, "2-other", "--reason", "one bank")
    rules = dlq("groups", "rules")
    listed = dlq("groups", "--json").document
    undone = dlq("groups", "undo", "2-other")
    none = dlq("groups", "rules")

    assert f"1 letter moved to {NAME}." in merged.out
    assert f"2-other: all letters belong to {NAME}" in rules.out
    assert listed["open"] == 2
    assert "moved back to 2-other" in undone.out
    assert "No groups were merged or split." in none.out


def test_a_group_is_split_by_a_search_and_nothing_else(dlq: Command) -> None:
    dlq.keep(recent(), recent(2, version="2.0"))

    split = dlq("groups", "split", NAME, "version:2.0")
    wrong = dlq("groups", "split", NAME, "is:pending")

    assert "1 letter moved to split-" in split.out
    assert wrong.code == 2
    assert "no group can be split by it" in wrong.err


def test_letters_are_moved_to_their_groups_at_once(dlq: Command) -> None:
    dlq.keep(recent())

    done = dlq("groups", "regroup")

    assert "0 letters moved. Every letter is in its group." in done.out


def test_a_group_shows_what_its_letters_have_in_common(dlq: Command) -> None:
    yen = b'{"currency": "JPY", "token": "t0p"}'
    dlq.keep(
        *(recent(n, body=yen) for n in range(4)),
        recent(9, body=b'{"currency": "EUR"}', fingerprint="1-other"),
    )

    shown = dlq("groups", "show", NAME)
    variants = dlq("groups", "show", NAME, "--json").document["variants"]

    assert "of the newest 4 of 4 letters, compared with 1 others" in shown.out
    assert "body.currency" in shown.out
    assert "1 error text, without variable parts" in shown.out
    assert variants["traits"][0]["field"] == "body.currency"
    assert "t0p" not in shown.out + str(variants)


def test_a_group_behind_a_server_shows_the_same(dlq: Command, remote: RemoteCommand) -> None:
    dlq.keep(*(recent(n) for n in range(4)))

    shown = remote("groups", "show", NAME, "--json").document

    assert shown["variants"] == dlq("groups", "show", NAME, "--json").document["variants"]
    assert shown["variants"]["looked_at"] == 4


def test_a_list_ends_with_the_total(dlq: Command, remote: RemoteCommand) -> None:
    dlq.keep(*(recent(n, version=f"1.{n}") for n in range(30)))

    assert dlq("list").out.rstrip().endswith("Showing 25 of 30.")
    assert remote("list").out.rstrip().endswith("Showing 25 of 30.")
    assert "Showing 2 of 30." in dlq("list", "error:TimeoutError", "-n", "2").out
    assert "Showing 10 of 10." in dlq("list", "version:<1.10").out
    assert "Showing 3 of 20." in remote("list", "version:>=1.10", "-n", "3").out
