"""One tree of settings: the file, then the environment; mistakes are named."""

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from deadletter.core.alerts import AlertTarget, TargetKind
from deadletter.core.errors import ConfigError
from deadletter.settings import RetentionDays, Serve, Settings, Work, load_settings, must_be


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "deadletter.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings(environ={}) == Settings()


def test_the_file_says_what_differs(folder: Path) -> None:
    write(
        folder,
        """
        url = "sqlite:///shop.db"
        app = "shop:app"

        [work]
        processes = 4
        watchdog = 60

        [retention_days]
        closed = 14
        """,
    )

    settings = load_settings(environ={})

    assert settings == Settings(
        url="sqlite:///shop.db",
        app="shop:app",
        work=Work(processes=4, watchdog=60.0),
        retention_days=RetentionDays(closed=14),
    )


def test_the_environment_wins_over_the_file(folder: Path) -> None:
    write(folder, 'url = "sqlite:///a.db"\n[work]\nwatchdog = 3\nprocesses = 2\n')
    environ = {
        "DLQ_URL": "memory://",
        "DLQ_WORK_WATCHDOG": "20",
        "DLQ_WORK_HEALTH_PORT": "8080",
        "DLQ_RETENTION_DAYS_LEDGER": "0.5",
    }

    settings = load_settings(environ=environ)

    assert settings.url == "memory://"
    assert settings.work == Work(processes=2, watchdog=20.0, health_port=8080)
    assert settings.retention_days.ledger == 0.5


def test_a_variable_set_to_nothing_is_not_set() -> None:
    assert load_settings(environ={"DLQ_APP": "", "DLQ_URL": ""}) == Settings()


def test_a_rules_file_is_looked_for_beside_the_file_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    file = write(folder, 'rules = "rules.toml"')

    assert load_settings(file, environ={}).rules == str(folder / "rules.toml")
    assert load_settings(file, environ={"DLQ_RULES": "r.toml"}).rules == "r.toml"


def test_the_file_may_be_named_by_argument_or_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('app = "a:app"')
    (tmp_path / "b.toml").write_text('app = "b:app"')
    environ = {"DLQ_CONFIG": "b.toml"}

    assert load_settings(environ=environ).app == "b:app"
    assert load_settings("a.toml", environ=environ).app == "a:app"


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"no settings file nowhere\.toml"):
        load_settings("nowhere.toml", environ={})


def test_a_folder_is_not_a_settings_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Could not read"):
        load_settings(tmp_path, environ={})


@pytest.mark.parametrize("text", ["url = ", "url = 'a'\nurl = 'b'", "\x00"])
def test_invalid_toml_is_rejected(folder: Path, text: str) -> None:
    write(folder, text)

    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_settings(environ={})


def test_bytes_that_are_no_text_are_refused(folder: Path) -> None:
    (folder / "deadletter.toml").write_bytes(b"url = '\xff\xfe'")

    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_settings(environ={})


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("ulr = 'memory://'", "url"),
        ("[work]\nprocesss = 3", "work.processes"),
        ("[wrok]\nprocesses = 3", "work"),
        ("[work]\nhealthport = 3", "work.health_port"),
        ("[retention_days]\nclose = 3", "retention_days.closed"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(folder: Path, text: str, near: str) -> None:
    write(folder, text)

    with pytest.raises(ConfigError, match=f"Did you mean {near}"):
        load_settings(environ={})


def test_a_key_like_none_of_ours_gets_the_whole_list(folder: Path) -> None:
    write(folder, "zzz = 1")

    with pytest.raises(ConfigError, match=r"Known: url, office, .*app, .*work\.processes"):
        load_settings(environ={})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("url = 5", r"url in .*deadletter\.toml must be a text, not 5"),
        ("[work]\nprocesses = 'many'", r"work\.processes in .* must be a whole number"),
        ("[work]\nprocesses = 0", r"work\.processes in .* 1 or more, not 0"),
        ("[work]\nhealth_port = 70000", r"must be a port number, 1 to 65535"),
        ("[work]\nhealth_port = '8080'", r"must be a port number"),
        ("[work]\nwatchdog = -1", r"work\.watchdog in .* must be seconds"),
        ("[retention_days]\nclosed = 0", r"retention_days\.closed in .* must be days"),
        ("work = 3", r"work in .* is a section: write \[work\]"),
        ("url = {a = 1}", r"url in .* must be a text"),
    ],
)
def test_a_wrong_value_names_the_key_and_what_it_should_be(
    folder: Path, text: str, sentence: str
) -> None:
    write(folder, text)

    with pytest.raises(ConfigError, match=sentence):
        load_settings(environ={})


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "inf", "nan"])
def test_a_wrong_value_in_the_environment_names_the_variable(value: str) -> None:
    with pytest.raises(ConfigError, match="DLQ_WORK_PROCESSES must be a whole number"):
        load_settings(environ={"DLQ_WORK_PROCESSES": value})


def test_a_slip_in_a_variable_is_noticed() -> None:
    with pytest.raises(ConfigError, match="Did you mean DLQ_WORK_PROCESSES"):
        load_settings(environ={"DLQ_WORK_PROCESS": "5"})


@pytest.mark.parametrize(
    "name",
    [
        "DLQ_SERVER",
        "DLQ_TOKEN",
        "DLQ_TOKEN_FILE",
        "DLQ_SERVICE_HOST",
        "DLQ_SERVICE_PORT",
        "DLQ_SERVICE_PORT_HTTP",
        "DLQ_PORT",
        "DLQ_PORT_80_TCP_ADDR",
        "DLQ_TTL_DAYS",
        "DLQ_POLL_INTERVAL_MS",
        "HOME",
    ],
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert load_settings(environ={name: "whatever"}) == Settings()


TARGETS = (
    AlertTarget(kind=TargetKind.WEBHOOK, to="https://a.example/hook", secret="hush"),
    AlertTarget(kind=TargetKind.EMAIL, to="ann@a.example, bob@a.example"),
)


def test_lists_of_sections_come_from_the_file(folder: Path) -> None:
    write(
        folder,
        """
        [serve]
        access = "off"
        replay_to = ["orders", "orders-slow"]

        [alerts]
        new_groups = false

        [[alerts.targets]]
        kind = "webhook"
        to = "https://a.example/hook"
        secret = "hush"

        [[alerts.targets]]
        kind = "email"
        to = "ann@a.example, bob@a.example"
        """,
    )

    settings = load_settings(environ={})

    assert settings.alerts.targets == TARGETS
    assert not settings.alerts.new_groups
    assert settings.serve == Serve(access="off", replay_to=("orders", "orders-slow"))


def test_lists_come_from_the_environment_between_commas_or_as_json() -> None:
    environ = {
        "DLQ_SERVE_REPLAY_TO": "orders, orders-slow,",
        "DLQ_SERVE_PROXIES": '["10.0.0.1"]',
        "DLQ_ALERTS_TARGETS": msgspec.json.encode(TARGETS).decode(),
        "DLQ_ALERTS_NEW_GROUPS": "false",
    }

    settings = load_settings(environ=environ)

    assert settings.serve.replay_to == ("orders", "orders-slow")
    assert settings.serve.proxies == ("10.0.0.1",)
    assert settings.alerts.targets == TARGETS
    assert not settings.alerts.new_groups


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[serve]\naccess = 'maybe'", "serve.access in .* must be on or off"),
        ("[serve]\nport = -1", "a port number, 0 to 65535"),
        ("[serve]\nreplay_to = 'orders'", "serve.replay_to in .* a list of texts"),
        ("[serve]\nreplay_to = [1]", "serve.replay_to in .* a list of texts"),
        ("[alerts]\nnew_groups = 1", "must be true or false, not 1"),
        ("[alerts]\ntargets = [{to = 'a'}]", r"alerts.targets .* `kind` - at `\$\[0\]`"),
        (
            "[[alerts.targets]]\nkind = 'slack'\nto = 'hush'\nurl = 'x'",
            r"unknown field `url` - at `\$\[0\]`",
        ),
        (
            "[[alerts.targets]]\nkind = 'fax'\nto = 'hush'",
            r"'fax' - at `\$\[0\]\.kind`; it is one of webhook, slack, email",
        ),
    ],
)
def test_invalid_list_entries_are_reported(folder: Path, text: str, sentence: str) -> None:
    write(folder, text)

    with pytest.raises(ConfigError, match=sentence) as refused:
        load_settings(environ={})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("text", ["[", '[{"kind": "webhook"}]', "https://a.example"])
def test_invalid_list_entries_of_the_environment_are_reported(text: str) -> None:
    with pytest.raises(ConfigError, match="DLQ_ALERTS_TARGETS must be a list"):
        load_settings(environ={"DLQ_ALERTS_TARGETS": text})


def test_secrets_of_targets_are_never_shown() -> None:
    environ = {"DLQ_ALERTS_TARGETS": msgspec.json.encode(TARGETS).decode()}

    assert "hush" not in repr(load_settings(environ=environ))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (int, "a whole number"),
        (float | None, "a number"),
        (Literal["a", "b"], "a or b"),
        (tuple[str, ...], "a list"),
        (tuple[AlertTarget, ...], "a list of sections"),
        (TargetKind, "webhook or slack or email"),
    ],
)
def test_types_are_told_in_words(kind: Any, words: str) -> None:
    assert must_be(kind) == words


def test_a_password_in_the_url_is_never_shown() -> None:
    settings = load_settings(environ={"DLQ_URL": "postgresql://me:hunter2@db/x"})

    assert "hunter2" in settings.url
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)


def test_signing_keys_are_read_and_never_shown() -> None:
    keys = "first-key-of-thirty-two-characters, second-key-of-thirty-two-characters"
    settings = load_settings(environ={"DLQ_SIGNING_KEYS": keys})

    assert settings.signing_keys == tuple(keys.split(", "))
    assert "thirty" not in repr(settings)


def test_servers_of_others_are_named_sections(tmp_path: Path) -> None:
    file = tmp_path / "deadletter.toml"
    file.write_text('[sources.shop]\nurl = "amqp://me:hunter2@shop:5672"\n')
    nested = "redis://a/0?results=redis%3A%2F%2F%3Ahunter2%40b%2F1"
    results = load_settings(environ={"DLQ_SOURCES": json.dumps({"shop": {"url": nested}})})

    found = load_settings(file, environ={})
    given = '{"mail": {"url": "redis://mail"}}'
    by_variable = load_settings(file, environ={"DLQ_SOURCES": given})

    assert found.source_urls == {"shop": "amqp://me:hunter2@shop:5672"}
    assert by_variable.source_urls == {"mail": "redis://mail"}
    assert results.source_urls == {"shop": nested}
    assert "hunter2" not in repr(found) + repr(results)


@pytest.mark.parametrize(
    "text",
    [
        "[sources.shop]\n",
        '[sources.shop]\nurl = "redis://a"\nurls = "b"\n',
        '[sources."amqp://shop"]\nurl = "redis://a"\n',
        'sources = "redis://:secret@a"\n',
    ],
)
def test_a_server_needs_a_name_and_a_url(tmp_path: Path, text: str) -> None:
    file = tmp_path / "deadletter.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=r"sections \[sources.NAME\]") as raised:
        load_settings(file, environ={})

    assert "secret" not in str(raised.value)
