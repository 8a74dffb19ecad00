"""Commands for letters that were drained from other servers."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from cli.conftest import Command
from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import By, DeadLetter, State
from deadletter.core.origin import marked
from deadletter.intake.dialects import Origin
from deadletter.office.replay import ITSELF
from deadletter.testing.letters_bench import a_campaign, settled
from office.making import make_letter

SHOP = '[sources.shop]\nurl = "redis://:secret@127.0.0.1:1/0"\n'


def drained(number: int, server: str) -> DeadLetter:
    letter = make_letter(number)
    origin = Origin("rq", "rq:orders", server=server)
    return structs.replace(letter, message=marked(letter.message, origin))


def keep(dlq: Command, *letters: DeadLetter) -> list[str]:
    dlq.keep(*letters)
    return [letter.id for letter in letters]


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sources.toml").write_text(SHOP)
    monkeypatch.setenv("DLQ_CONFIG", str(tmp_path / "sources.toml"))


async def _sent(engine: object, ids: list[str]) -> None:
    letters = engine.letters  # type: ignore[attr-defined]
    await letters.plan_replay(a_campaign(through="shop"), ids)
    await letters.take_replay("c-1", limit=10)
    await letters.sent_replay("c-1", ids)


def test_a_drained_letter_is_not_sent_to_a_new_mailbox_unless_asked(dlq: Command) -> None:
    (id_,) = keep(dlq, drained(1, "redis://elsewhere:6379"))

    ran = dlq("replay", id_)
    plan = dlq("replay", "plan", id_, "--json").document
    shown = dlq("show", id_)
    asked = dlq("replay", id_, "--to", "ours", "--json")

    assert ran.code == 4
    assert "--through NAME or URL" in " ".join(ran.err.split())
    assert plan["verdicts"] == {"elsewhere": 1}
    assert f"replay {id_[:10]} --through redis://elsewhere:6379" in shown.out
    assert asked.code == 0
    assert asked.document["through"] == ""


def test_a_letter_that_names_no_queue_is_hinted_to_need_one(dlq: Command) -> None:
    letter = make_letter(1, source="celery:dead")
    origin = Origin("celery", "celery:dead", server="redis://elsewhere")
    (id_,) = keep(dlq, structs.replace(letter, message=marked(letter.message, origin)))

    shown = dlq("show", id_).out

    assert f"replay {id_[:10]} --through redis://elsewhere --to QUEUE" in shown


@pytest.mark.usefixtures("named")
def test_a_letter_of_a_named_server_goes_back_by_itself(dlq: Command) -> None:
    by_name, by_url = keep(dlq, drained(1, "shop"), drained(2, "redis://127.0.0.1:1/0"))

    plan = dlq("replay", "plan", "*")
    shown = dlq("show", by_url)
    begun = dlq("replay", "start", "*", "--presume", "2m", "--json").document
    ran = dlq("replay", by_name)  # nobody answers there

    assert "2 letters would be sent to orders (2) through shop." in plan.out
    assert "--through" not in shown.out
    assert (begun["through"], begun["care"]["presume_after"]) == ("shop", 120.0)
    assert ran.code == 5
    assert "secret" not in ran.err + plan.out + plan.err


_NESTED = "redis%3A%2F%2F%3Ahunter2%40127.0.0.1%3A1%2F1"
SECRET_URLS = [
    f"redis://127.0.0.1:1/0?results={_NESTED}",
    "redis://:hunter2@127.0.0.1:1/0?results=redis://:hunter2@other/1",
    "redis://127.0.0.1:1/0?results=:hunter2@other/1",
    f"redis://127.0.0.1:1/0?nothing={_NESTED}",
    f"nothing://me:hunter2@127.0.0.1/?results={_NESTED}",
    "redis://:hunter2/x@127.0.0.1:1",
    "redis://me:12/hunter2@127.0.0.1:1",
    "redis://:hunter2?x@127.0.0.1:1",
    "nats://hunter2@127.0.0.1:1",
    "redis:/me:hunter2@127.0.0.1:1",
    ":hunter2@127.0.0.1:1",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_secrets_in_the_url_of_a_server_are_never_shown(
    url: str, dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(dlq, drained(1, "shop"))
    (tmp_path / "sources.toml").write_text(f'[sources.shop]\nurl = "{url}"\n')
    ran = [
        dlq("drain", url, "rq:orders"),
        dlq("replay", "*", "--through", url, "--yes"),
        dlq("replay", "plan", "*", "--through", url),
    ]
    monkeypatch.setenv("DLQ_CONFIG", str(tmp_path / "sources.toml"))
    ran += [
        dlq("drain", "shop", "rq:orders"),
        dlq("drain", "missing", "rq:orders"),
        dlq("show", "*"),
        dlq("replay", "plan", "*"),
        dlq("replay", "*", "--yes"),
        dlq("--json", "replay", "status"),
        dlq("--json", "audit"),
        dlq("--json", "show", dlq("--json", "list").documents[0]["id"], "--capture"),
    ]

    told = "".join(one.out + one.err for one in ran)
    assert "hunter2" not in told
    assert "unexpected" not in told


async def _halted(engine: object, ids: list[str], through: str) -> None:
    letters = engine.letters  # type: ignore[attr-defined]
    await letters.plan_replay(a_campaign(through=through, to="mail"), ids)
    taken = await letters.take_replay("c-1", limit=1)
    await letters.sent_replay("c-1", ids[:1])
    await letters.settle_replays([settled(one, Outcome.FAILED) for one in taken])
    by = By(ITSELF, "stopped by itself: 1 of 1 failed again")
    await letters.set_campaign("c-1", CampaignState.PAUSED, by)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    ("through", "on_resume"), [("shop", ""), ("redis://far:6379", " --through redis://far:6379")]
)
def test_commands_to_type_next_say_where_letters_go(
    dlq: Command, through: str, on_resume: str
) -> None:
    ids = keep(dlq, drained(1, "shop"), drained(2, "shop"))
    dlq.do(lambda engine: _halted(engine, ids, through))

    said = dlq("replay", "status", "c-1").err

    assert re.search(rf" replay resume c-1{on_resume}$", said, re.MULTILINE)
    again = rf"^  dlq .*replay \w+ --through {through} --to mail$"
    assert re.search(again, said, re.MULTILINE)


def test_letters_that_wait_are_closed_by_a_search_for_them(dlq: Command) -> None:
    ids = keep(dlq, drained(1, "shop"), drained(2, "shop"))
    dlq.do(lambda engine: _sent(engine, ids))

    ran = dlq("close", "is:replaying", "--reason", "seen in the shop")

    assert (ran.code, ran.out.strip()) == (0, "2 letters closed.")
    letters = dlq.do(lambda engine: engine.letters.get(ids))
    assert {one.head.state for one in letters} == {State.CLOSED}


def test_messages_are_confirmed_by_their_ids(dlq: Command) -> None:
    ids = keep(dlq, drained(1, "shop"))
    dlq.do(lambda engine: _sent(engine, ids))

    ran = dlq("confirm", "m-1", "m-9")
    again = dlq("confirm", "m-1")

    assert ran.code == 0
    assert ran.out.splitlines() == ["1 letter confirmed.", "No letter waits for message m-9."]
    assert again.code == 4
    (item,) = dlq.do(lambda engine: engine.letters.replays(ids))
    assert item.outcome is Outcome.CONFIRMED
