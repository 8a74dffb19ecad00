"""dlq drain, and dlq replay --through, on a real server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from cli.conftest import Command
from deadletter.cli.app import ExitCode
from engines.conftest import every_server_is_back_afterwards
from intake.rig import raw, recorded
from office.making import make_letter
from servers import Server

__all__ = ["every_server_is_back_afterwards"]

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("redis_server")]


@pytest.fixture
def client(redis_server: Server) -> Iterator[Any]:
    client: Any = Redis.from_url(redis_server.url)
    client.flushdb()
    for one in recorded("bullmq")["keys"]:
        if one["type"] == "hash":
            fields = {raw(f): raw(v) for f, v in one["value"]}
            client.hset(one["key"], mapping=fields)
        elif one["type"] == "zset":
            client.zadd(one["key"], {raw(m): score for m, score in one["value"]})
    yield client
    client.close()


def test_letters_are_taken_in_and_counted(dlq: Command, client: Any, redis_server: Server) -> None:
    ran = dlq("drain", redis_server.url, "bullmq:mail")

    assert ran.code == ExitCode.OK
    assert "2 letters imported" in ran.out
    assert "bullmq:mail" in ran.out
    assert "smtp timeout" in dlq("list").out
    assert client.zcard("bull:mail:failed") == 0


def test_without_a_name_places_are_looked_for(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    ran = dlq("--json", "drain", redis_server.url)

    assert ran.document == {
        "found": 2,
        "new": 2,
        "known": 0,
        "refused": 0,
        "in_flight": 0,
        "places": [{"place": "bullmq:mail", "source": "mail", "dialect": "bullmq", "letters": 2}],
    }


def test_no_more_are_taken_than_was_said(dlq: Command, client: Any, redis_server: Server) -> None:
    assert dlq("--json", "drain", redis_server.url, "--limit", "1").document["new"] == 1
    assert client.zcard("bull:mail:failed") == 1


def test_looking_takes_nothing(dlq: Command, client: Any, redis_server: Server) -> None:
    ran = dlq("drain", redis_server.url, "--dry-run")

    assert "nothing was imported" in ran.out
    assert "smtp timeout for w1" in ran.out
    assert client.zcard("bull:mail:failed") == 2
    assert dlq("--json", "list").documents == []


def test_letters_go_back_through_the_server_they_were_found_on(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    dlq("drain", redis_server.url)

    ran = dlq("--json", "replay", "source:mail", "--through", redis_server.url, "--yes")

    assert ran.code == ExitCode.OK, ran.err
    assert client.lrange("bull:mail:wait", 0, -1) == [b"w1"]
    assert client.zcard("bull:mail:prioritized") == 1
    states = {one["state"] for one in dlq("--json", "list").documents}
    assert states == {"replaying"}


def test_jobs_whose_id_is_in_use_go_under_a_new_one_if_asked(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    dlq("drain", redis_server.url)
    client.hset("bull:mail:w1", mapping={"name": "live", "data": '"live"'})
    through = ("--through", redis_server.url)

    plan = dlq("--json", "replay", "plan", "message:w1", *through).document
    told = dlq("replay", "message:w1", *through, "--dry-run").out
    none = dlq("replay", "message:w1", *through, "--yes")
    asked = ("--include", "id-in-use")
    sent = dlq("--json", "replay", "message:w1", *through, *asked, "--yes")

    assert (plan["verdicts"], plan["sendable"]) == ({"id-in-use": 1}, 0)
    assert "not sent: their job id is in use by another job" in told
    assert none.code == ExitCode.CONFLICT
    assert sent.code == ExitCode.OK, sent.err
    assert client.hget("bull:mail:w1", "data") == b'"live"'
    assert client.lrange("bull:mail:wait", 0, -1) == [b"w1-replay-1"]
    assert client.hget("bull:mail:w1-replay-1", "dlq:instead-of") == b"w1"


def test_letters_of_ours_do_not_go_to_other_peoples_servers(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    dlq.keep(make_letter())

    ran = dlq("replay", "*", "--through", redis_server.url, "--yes")

    assert ran.code == ExitCode.UNAVAILABLE
    assert "cannot return to this server" in ran.err
    assert dlq("--json", "replay", "status").documents == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sqlite:///office.db",), "cannot drain from"),
        (("redis://127.0.0.1:1",), "127.0.0.1:1: is Redis running"),
        (("SERVER", "orders"), "rq:QUEUE"),
        (("SERVER", "--follow", "--limit", "3"), "cannot be combined with --limit"),
    ],
)
def test_failed_drains_explain_why(
    dlq: Command, redis_server: Server, words: tuple[str, ...], said: str
) -> None:
    real = [redis_server.url if word == "SERVER" else word for word in words]

    ran = dlq("drain", *real)

    assert ran.code in {ExitCode.USAGE, ExitCode.UNAVAILABLE}
    assert said in ran.err


def test_following_goes_on_until_told_to_stop(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    words = ["--json", "drain", redis_server.url, "bullmq:mail", "--follow"]
    with subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", *words], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        said = [json.loads(running.stdout.readline()) for _ in range(2)]
        running.send_signal(signal.SIGTERM)
        code = running.wait(20)

    assert code == ExitCode.OK
    assert {one["event"] for one in said} == {"buried"}
    assert len(dlq("--json", "list").documents) == 2
    assert client.zcard("bull:mail:failed") == 0


def test_an_empty_place_is_said_to_be_empty(
    dlq: Command, client: Any, redis_server: Server
) -> None:
    client.flushdb()

    ran = dlq("drain", redis_server.url)

    assert ran.code == ExitCode.OK
    assert "No dead letters found" in ran.out


@pytest.mark.parametrize(
    ("place", "near"),
    [
        *(("rq:shpo", "rq:shop"), ("bullmq:mial", "bullmq:mail")),
        *(("dramatiq:shpo", "dramatiq:shop"), ("celery:shpo", "celery:shop")),
    ],
)
def test_a_misspelt_place_is_an_error_with_near_names(
    dlq: Command, client: Any, redis_server: Server, place: str, near: str
) -> None:
    client.sadd("rq:queues", "rq:queue:shop")
    client.hset("dramatiq:shop.msgs", "1", "{}")
    client.sadd("_kombu.binding.shop", "shop\x06\x16\x06\x16shop")

    for more in ((), ("--dry-run",)):
        ran = dlq("drain", redis_server.url, place, *more)

        assert ran.code == ExitCode.NOT_FOUND
        assert f"did you mean {near}?" in ran.err


@pytest.mark.parametrize("place", ["rq:shop", "bullmq:mail", "celery:dead"])
def test_an_empty_place_that_exists_is_no_error(
    dlq: Command, client: Any, redis_server: Server, place: str
) -> None:
    client.sadd("rq:queues", "rq:queue:shop")
    client.delete("bull:mail:failed")

    ran = dlq("drain", redis_server.url, place)

    assert (ran.code, "No dead letters found" in ran.out) == (ExitCode.OK, True)


def test_drained_messages_are_audited(dlq: Command, client: Any, redis_server: Server) -> None:
    dlq("drain", redis_server.url, "--reason", "monday")

    entries = dlq.do(lambda engine: engine.letters.audit())

    [entry] = [one for one in entries if one.action == "drain"]
    assert (entry.target, entry.reason, entry.detail) == ("bullmq:mail", "monday", "2 letters")


def test_where_a_letter_was_found_is_shown_as_fields(
    dlq: Command, client: Any, redis_server: Server, remote: Any
) -> None:
    dlq("drain", redis_server.url)
    name = dlq("--json", "list").documents[0]["id"]

    for ask in (dlq, remote):
        [bare] = ask("--json", "show", name).documents
        [whole] = ask("--json", "show", name, "--capture").documents

        assert bare["origin"]["place"] == "bullmq:mail"
        assert not any("dlq-found" in line for line in bare["message"]["headers"])
        assert any("dlq-found" in line for line in whole["message"]["headers"])
    assert "Found in bullmq:mail" in dlq("show", name).out
