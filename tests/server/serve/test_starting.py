"""The start of `dlq serve`: defaults, checks and errors."""

import asyncio
import json
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from deadletter.cli.app import run
from deadletter.core.letter import DeadLetter
from deadletter.wiring.engines import opened
from office.making import make_letter
from server.serve.conftest import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]
Dlq = Callable[..., tuple[int, str]]
LETTERS = "/api/v1/letters"


@pytest.fixture
def dlq(elsewhere: None, capsys: pytest.CaptureFixture[str]) -> Dlq:
    """Run `dlq serve` in this process and return exit code and output."""

    def ran(*words: str) -> tuple[int, str]:
        code = run(["serve", *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return ran


def test_the_server_answers_at_its_address_and_shows_the_first_token_once(
    serve: Serve, tmp_path: Path
) -> None:
    first = serve()
    token = first.token
    with first.client() as nobody, first.client(token) as admin:
        refused = nobody.get(LETTERS)
        answer = admin.get(LETTERS)
    first.signal()
    assert first.ended() == 0
    again = serve()
    with again.client(token) as admin:
        still = admin.get(LETTERS)

    assert refused.status_code == 401
    assert answer.status_code == 200
    assert still.status_code == 200
    assert first.url.startswith("http://127.0.0.1:")
    assert again.tokens == []
    mode = (tmp_path / "office.db").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_serving_ignores_the_server_setting_of_clients(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_SERVER", "http://127.0.0.1:1")

    assert dlq("--check", "--port", "0")[0] == 0
    code, said = dlq("--check", "--server", "http://127.0.0.1:1")

    assert code == 2
    assert "a server serves an engine" in said


def test_with_access_off_nobody_is_asked_and_no_token_made(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('[serve]\naccess = "off"\n')
    served = serve()

    with served.client() as client:
        answer = client.get(LETTERS)

    assert answer.status_code == 200
    assert served.tokens == []


def test_ipv6_works_where_the_machine_has_it(serve: Serve) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no ::1 here")
    served = serve("--host", "::1", "--access", "off")

    with served.client() as client:
        assert client.get(LETTERS).status_code == 200
    assert served.url.startswith("http://[::1]:")


def test_without_the_extra_it_says_what_to_install(serve: Serve, tmp_path: Path) -> None:
    hiding = "import sys\nsys.modules['litestar'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hiding)
    path = ":".join([str(tmp_path), *filter(None, sys.path)])

    served = serve(PYTHONPATH=path)

    assert served.ended() == 2
    assert "pip install 'deadletter[web]'" in served.said


def test_a_port_in_use_is_a_sentence(dlq: Dlq) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = dlq("--port", str(taken.getsockname()[1]))

    assert code == 2
    assert "cannot listen on 127.0.0.1" in said
    assert "address already in use" in said
    assert "Traceback" not in said


def test_an_address_of_others_is_a_sentence(dlq: Dlq) -> None:
    code, said = dlq("--host", "192.0.2.7")

    assert code == 2
    assert "cannot listen on 192.0.2.7" in said


HOSTS = ["0.0.0.0", "::", "192.0.2.7", "example.invalid", "127.0.0.1.example.invalid"]


@pytest.mark.parametrize("check", [[], ["--check"]])
@pytest.mark.parametrize("host", HOSTS)
def test_others_cannot_come_in_while_access_is_off(dlq: Dlq, host: str, check: list[str]) -> None:
    code, said = dlq("--host", host, "--access", "off", *check)

    assert code == 2
    assert "serve.access is off" in said


@pytest.mark.parametrize("everybody", ["*", "0.0.0.0/0", "::/0", "10.0.0.7,*"])
def test_not_everybody_is_believed_to_be_a_proxy(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, everybody: str
) -> None:
    monkeypatch.setenv("DLQ_SERVE_PROXIES", everybody)

    code, said = dlq("--port", "0", "--check")

    assert code == 2
    assert "serve.proxies contains" in said
    assert "10.0.0.0/24" in said


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_database_out_of_reach_is_a_sentence(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, check: list[str]
) -> None:
    monkeypatch.setenv("DLQ_URL", "postgresql://me:hunter2@127.0.0.1:1/nothing")

    code, said = dlq("--port", "0", *check)

    assert code == 5
    assert "127.0.0.1" in said
    assert "hunter2" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DLQ_SERVE_PORT", "many", "DLQ_SERVE_PORT must be a port"),
        ("DLQ_URL", "nowhere://", "is not the URL of an engine"),
        ("DLQ_URL", "sqlite:///new.db?synchronos=full", "unknown parameter"),
        ("DLQ_SERVE_PROXIES", "10.0.0.7,proxy.internal", "contains 'proxy.internal', which"),
        ("DLQ_SERVE_PROXIES", "10.0.0.1/8", "contains '10.0.0.1/8', which"),
    ],
)
def test_settings_that_cannot_be_are_a_sentence(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)

    code, told = dlq("--check")

    assert code == 2
    assert said in told


def test_a_check_makes_nothing(dlq: Dlq, tmp_path: Path) -> None:
    code, said = dlq("--check", "--port", "0")

    assert code == 0
    assert "the first start creates it" in said
    assert list(tmp_path.iterdir()) == []


def test_a_check_leaves_a_file_of_somebody_else_as_it_is(dlq: Dlq, tmp_path: Path) -> None:
    file = tmp_path / "office.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE users (a)")
    before = file.read_bytes()

    code, said = dlq("--check", "--port", "0")

    assert code == 2
    assert "another program" in said
    assert file.read_bytes() == before


def checked(said: str) -> dict[str, tuple[str, str]]:
    documents = [json.loads(line) for line in said.splitlines()]
    return {one["name"]: (one["health"], one["text"]) for one in documents}


def test_a_check_says_how_everything_stands(serve: Serve, dlq: Dlq) -> None:
    served = serve()
    assert served.token
    port = served.url.rpartition(":")[2]

    code, said = dlq("--json", "--check", "--port", port)

    found = checked(said)
    assert code == 0
    assert found["listening"][0] == "warn"
    assert "another process already answers" in found["listening"][1]
    assert found["durability"][0] == "ok"
    assert found["queue server"][0] == "ok"
    assert found["access"] == ("ok", "valid tokens: 1.")
    assert found["alerts"][0] == "ok"


def test_a_check_before_the_first_start_looks_at_all_the_rest(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = {"kind": "webhook", "to": "gopher://hooks"}
    monkeypatch.setenv("DLQ_ALERTS_TARGETS", json.dumps([target]))
    monkeypatch.setenv("DLQ_URL", f"sqlite:///{tmp_path}/no/such/office.db")

    code, said = dlq("--json", "--check", "--host", "192.0.2.1", "--port", "0")

    found = checked(said)
    assert code == 6
    assert found["engine"][0] == "fail"
    assert "create it, or change the path" in found["engine"][1]
    assert found["listening"][0] == "fail"
    assert "cannot listen on 192.0.2.1" in found["listening"][1]
    assert found["alerts"][0] == "fail"
    assert found["access"] == ("ok", "the next start prints a first token.")
    assert list(tmp_path.iterdir()) == []


def test_a_check_before_the_first_start_asks_the_engine_beside_its_office(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("DLQ_OFFICE", "sqlite:///new.db")

    code, said = dlq("--check", "--port", "0")

    assert code == 5
    assert "no answer from 127.0.0.1:1" in said


def test_a_check_warns_of_a_webhook_that_is_not_signed(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"kind": "webhook", "to": "https://hooks.example"}
    monkeypatch.setenv("DLQ_ALERTS_TARGETS", json.dumps([target]))

    code, said = dlq("--json", "--check", "--port", "0")

    assert code == 0
    assert checked(said)["alerts"][0] == "warn"
    assert "a webhook without a secret is not signed" in checked(said)["alerts"][1]


def test_a_check_fails_on_an_alert_target_that_cannot_be(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"kind": "webhook", "to": "gopher://hooks"}
    monkeypatch.setenv("DLQ_ALERTS_TARGETS", json.dumps([target]))
    monkeypatch.setenv("DLQ_URL", "memory://")

    code, said = dlq("--json", "--check", "--port", "0", "--access", "off")

    assert code == 6
    assert checked(said)["alerts"][0] == "fail"
    assert checked(said)["access"][0] == "warn"


_SHOP = """
import msgspec
from deadletter import App

app = App("sqlite:///office.db")

class Order(msgspec.Struct):
    id: int

@app.handler("orders")
async def charge(order: Order) -> None: ...
"""


@pytest.mark.parametrize("named", ["argument", "settings"])
def test_plans_of_a_server_that_knows_the_app_check_bodies(
    serve: Serve, tmp_path: Path, named: str
) -> None:
    (tmp_path / "served_shop.py").write_text(_SHOP)
    good, bad = make_letter(1, body=b'{"id": 1}'), make_letter(2, body=b'{"id": "x"}')
    asyncio.run(_keep(tmp_path / "office.db", good, bad))
    words = ["served_shop:app"] if named == "argument" else []
    served = serve("--access=off", *words, DLQ_APP="" if words else "served_shop:app")

    with served.client() as client:
        planned = client.post("/api/v1/replays/plan", json={"query": "source:orders"})
        judged = client.post("/api/v1/replays/verdicts", json={"query": "*"})

    assert planned.json()["plan"]["verdicts"] == {"unreadable": 1, "no-mailbox": 1}
    assert planned.json()["sendable"] == 1
    verdicts = {one["letter_id"]: one["verdict"] for one in judged.json()["letters"]}
    assert verdicts == {good.id: "no-mailbox", bad.id: "unreadable"}


async def _keep(file: Path, *letters: DeadLetter) -> None:
    async with opened(f"sqlite:///{file}", make=True) as engine:
        assert engine.letters is not None
        await engine.letters.keep(letters)


def test_an_app_that_is_not_there_is_refused_where_it_is_named(
    dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = dlq("no_such_shop:app", "--check", "--port", "0")
    monkeypatch.setenv("DLQ_APP", "no_such_shop:app")
    unloaded, warned = dlq("--check", "--port", "0")

    assert code == 2
    assert "there is no module 'no_such_shop' in this directory" in said
    assert "Bodies are not checked against handlers" in warned
    assert "no_such_shop:app is not loaded" in warned
    assert unloaded == 0
