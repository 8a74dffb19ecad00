"""What versions show about a fix of a group."""

from datetime import timedelta

import pytest

from deadletter.core.deaths import FirstSeen, VersionDeaths
from deadletter.core.letter import Group, GroupStatus, Standing
from deadletter.office.group_versions import (
    GroupVersions,
    group_versions,
    judge_versions,
    versions_of_groups,
)
from deadletter.office.workers import RunningVersion
from deadletter.ports import LetterStore
from office.making import BY, NOW, make_letter

HOUR = timedelta(hours=1)


def group(status: GroupStatus = GroupStatus.NEW, version: str = "") -> Group:
    return Group(
        fingerprint="2-a",
        source="orders",
        error_type="E",
        text="",
        first_seen=NOW,
        last_seen=NOW,
        counts={},
        total=9,
        standing=Standing(status=status, version=version),
    )


def judged(
    one: Group,
    died: dict[str, int],
    seen: dict[str, float],
    running: list[RunningVersion] | None = None,
) -> GroupVersions:
    """Return the judgement; `seen` has the hours at which versions were first seen."""
    deaths = [
        VersionDeaths(
            group="2-a", version=name, n=n, first=NOW, last=NOW + seen.get(name, 0) * HOUR
        )
        for name, n in died.items()
    ]
    firsts = [FirstSeen("orders", name, NOW + at * HOUR) for name, at in seen.items()]
    return judge_versions(one, deaths, firsts, running=running)


def test_a_newer_version_without_deaths_may_have_the_fix() -> None:
    found = judged(group(), {"1.7": 2, "1.10": 3}, {"1.7": 0, "1.10": 1, "1.9": 2, "1.11": 3})

    assert [line.version for line in found.versions] == ["1.10", "1.7"]
    assert [one.version for one in found.newer] == ["1.11"]
    assert (found.fix, found.since_fix) == ("1.11", 0)
    assert found.before_fix == "group:2-a is:open version:<1.11"


def test_of_several_newer_versions_the_oldest_may_have_the_fix() -> None:
    found = judged(group(), {"1.7": 2}, {"1.7": 0, "1.8": 1, "1.9": 2})

    assert [one.version for one in found.newer] == ["1.9", "1.8"]
    assert found.fix == "1.8"


def test_the_version_that_somebody_named_comes_before_any_other() -> None:
    one = group(GroupStatus.REGRESSED, "1.8")

    found = judged(one, {"1.7": 2, "1.8": 3, "1.8.1": 4, "": 5}, {"1.7": 0, "1.8": 1, "1.9": 2})

    assert (found.fix, found.since_fix) == ("1.8", 7)
    assert [line.version for line in found.versions] == ["1.8.1", "1.8", "1.7", ""]


def test_versions_without_numbers_go_by_when_they_were_first_seen() -> None:
    found = judged(group(), {"3f9c2ab": 1}, {"3f9c2ab": 0, "aa00001": 1, "bb00002": -1})

    assert [one.version for one in found.newer] == ["aa00001"]


def test_a_newer_version_that_only_runs_may_have_the_fix() -> None:
    running = [
        RunningVersion(version="1.8.1", workers=3, since=NOW + 2 * HOUR),
        RunningVersion(version="1.8", workers=1, since=NOW),
    ]

    found = judged(group(), {"1.8": 2}, {"1.8": 0}, running)

    assert (found.fix, found.workers, found.knows_workers) == ("1.8.1", 4, True)
    assert [(one.version, one.has_fix) for one in found.running] == [
        ("1.8.1", True),
        ("1.8", False),
    ]
    assert found.before_fix == "group:2-a is:open version:<1.8.1"
    assert not judged(group(), {"1.8": 2}, {"1.8": 0}).knows_workers


def test_without_versions_nothing_is_known() -> None:
    found = judged(group(), {"": 3}, {"1.8": 1})

    assert (found.newer, found.fix, found.before_fix) == ((), "", "")


@pytest.mark.parametrize("sources", [(), ("orders",)])
async def test_versions_come_from_deaths_at_the_mailbox(
    store: LetterStore, sources: tuple[str, ...]
) -> None:
    for n, (name, source, version) in enumerate(
        [("2-a", "orders", "1.7"), ("2-b", "orders", "1.8"), ("2-c", "mails", "1.9")]
    ):
        await store.keep([make_letter(n, fingerprint=name, source=source, version=version)])
    await store.set_group("2-b", Standing(status=GroupStatus.MUTED), BY)

    found = await group_versions(store, "2-a", sources=sources)

    assert [(line.version, line.deaths) for line in found.versions] == [("1.7", 1)]
    assert [one.version for one in found.newer] == ["1.8"]
    assert await versions_of_groups(store, ["2-a", "2-c"]) == {"2-a": ("1.7",), "2-c": ("1.9",)}
    assert await versions_of_groups(store, []) == {}


async def test_deaths_of_a_flood_are_known_from_the_newest_letters(store: LetterStore) -> None:
    flood = [make_letter(n, fingerprint=f"2-{n:02}", version="1.8") for n in range(60)]
    await store.keep(flood)
    await store.keep([make_letter(99, fingerprint="2-new", version="1.9")])

    found = [await group_versions(store, f"2-{n:02}") for n in range(60)]

    assert {one.uncounted for one in found} == {0, 1}
    assert {one.versions[0].version for one in found} == {"1.8"}
    assert {one.fix for one in found} == {"1.9"}
    late = await group_versions(store, "2-new")
    assert [(line.version, line.deaths) for line in late.versions] == [("1.9", 1)]
    assert late.uncounted == 1
