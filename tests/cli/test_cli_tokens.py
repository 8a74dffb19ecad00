"""dlq tokens: create, list, revoke."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.conftest import Command, RemoteCommand
from client.serving import served
from deadletter.core.access import Role
from deadletter.server.auth.keys import token_hash
from office.making import make_letter


def kept(dlq: Command) -> Any:
    return dlq.do(lambda engine: engine.access.tokens())


def audit(dlq: Command) -> Any:
    return dlq.do(lambda engine: engine.letters.audit())


def test_a_token_is_printed_once_and_kept_as_a_hash(dlq: Command) -> None:
    ran = dlq(
        *("tokens", "create", "ci", "--role", "operator", "--days", "3"),
        *("--source", "orders", "--source", "mails", "--reason", "pipeline"),
        *("--actor", "anna"),
    )

    (token,) = kept(dlq)
    (act,) = audit(dlq)
    shown = ran.out.strip()
    assert ran.code == 0
    assert shown.startswith(f"dlq_{token.id}_")
    assert token.hash == token_hash(shown)
    assert (token.to.name, token.to.role) == ("ci", "operator")
    assert token.to.sources == ("orders", "mails")
    assert (token.expires_at - token.created_at).days == 2  # and some hours
    assert (act.actor, act.action, act.reason) == ("anna", "issue", "pipeline")
    assert shown not in act.detail


def test_tokens_are_listed_without_their_secrets(dlq: Command) -> None:
    empty = dlq("tokens")
    made = dlq("tokens", "create", "ci", "--json").document

    table = dlq("tokens", "list")
    (listed,) = dlq("tokens", "list", "--json").documents

    assert "dlq tokens create" in empty.out or empty.code == 3
    assert "ci" in table.out
    assert made["token"] not in table.out
    assert listed == {key: made[key] for key in listed}
    assert "token" not in listed


def test_a_revoked_token_is_gone(dlq: Command) -> None:
    made = dlq("tokens", "create", "ci", "--json").document

    unasked = dlq("tokens", "revoke", made["id"])
    gone = dlq("tokens", "revoke", made["id"], "--yes", "--reason", "leaked")
    again = dlq("tokens", "revoke", made["id"], "--yes")

    assert (unasked.code, gone.code, again.code) == (2, 0, 3)
    assert kept(dlq) == []
    assert [(act.action, act.reason) for act in audit(dlq)] == [("issue", ""), ("revoke", "leaked")]


def test_invalid_token_options_are_rejected(dlq: Command) -> None:
    nameless = dlq("tokens", "create", " ")
    roleless = dlq("tokens", "create", "ci", "--role", "god")
    timeless = dlq("tokens", "create", "ci", "--days", "0")

    assert (nameless.code, roleless.code, timeless.code) == (2, 2, 2)
    assert kept(dlq) == []


def test_tokens_are_kept_although_the_server_does_not_ask(dlq: Command, monkeypatch: Any) -> None:
    monkeypatch.setenv("DLQ_SERVE_ACCESS", "off")

    assert dlq("tokens", "create", "ci").code == 0
    assert len(kept(dlq)) == 1


def test_through_a_server_its_own_tokens_are_handed_out(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dlq.keep(make_letter())
    monkeypatch.setenv("DLQ_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    with served(dlq.url, access="on") as server:
        ask = RemoteCommand(dlq, server.url)
        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.ADMIN, name="root"))
        made = ask(
            *("tokens", "create", "zed", "--role", "operator", "--days", "3"),
            *("--source", "orders", "--reason", "new here"),
        )
        listed = ask("tokens", "--json").documents
        (zed,) = (one for one in listed if one["name"] == "zed")
        monkeypatch.setenv("DLQ_TOKEN", made.out.strip())
        seen, unseen = ask("list"), ask("tokens")
        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.ADMIN, name="root"))
        unasked = ask("tokens", "revoke", zed["id"])
        gone = ask("tokens", "revoke", zed["id"], "--yes", "--reason", "left")
        again = ask("tokens", "revoke", zed["id"], "--yes")
        claimed = ask("tokens", "--actor", "eve")
        monkeypatch.setenv("DLQ_TOKEN", made.out.strip())
        revoked = ask("list")

    assert not (tmp_path / "elsewhere.db").exists()
    assert (zed["role"], zed["sources"]) == ("operator", ["orders"])
    assert zed["expires_at"]
    assert (seen.code, unseen.code, revoked.code) == (0, 5, 5)
    assert (unasked.code, gone.code, again.code) == (2, 0, 3)
    assert gone.out == f"Token {zed['id']} of zed is revoked.\n"
    assert "the token identifies you" in claimed.err
    acts = [act for act in audit(dlq) if act.target == f"token:{zed['id']}"]
    assert [(act.actor, act.action, act.reason) for act in acts] == [
        ("root", "issue", "new here"),
        ("root", "revoke", "left"),
    ]


def test_sessions_are_listed_and_ended_in_the_store_and_through_a_server(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = dlq("tokens", "sessions")
    with served(dlq.url, access="on") as server:
        ask = RemoteCommand(dlq, server.url)
        shown = server.token(Role.ADMIN, name="root")
        monkeypatch.setenv("DLQ_TOKEN", shown)
        for _ in range(2):
            httpx.post(f"{server.url}/api/v1/session", json={"token": shown}).raise_for_status()
        table = ask("tokens", "sessions")
        first, second = ask("tokens", "sessions", "--json").documents
        ended = ask("tokens", "end-session", first["id"], "--reason", "left")
        again = ask("tokens", "end-session", first["id"])
    beside = dlq("tokens", "end-session", second["id"], "--json")

    assert "Nobody is signed in" in nobody.out or nobody.code == 3
    assert first["id"] in table.out
    assert {first["name"], second["name"]} == {"root"}
    assert (ended.code, again.code) == (0, 3)
    assert beside.document == {"ended": second["id"]}
    assert dlq("tokens", "sessions", "--json").documents == []
    ends = [act for act in audit(dlq) if act.action == "end-session"]
    assert [(act.reason, act.target) for act in ends] == [
        ("left", f"token:{first['token_id']}"),
        ("", f"token:{second['token_id']}"),
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_tokens_fit_the_terminal(dlq: Command, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = "the-pipeline-that-deploys-to"
    dlq("tokens", "create", f"{name}-europe")
    dlq("tokens", "create", f"{name}-asia", "--source", "orders", "--days", "3")

    ran = dlq("tokens")

    assert max(map(len, ran.out.splitlines())) <= width
    for part in ("urope ", "asia ", " in 2 d", " never"):
        assert part in ran.out
