"""The parts that every backend is built from: error tables, URLs, clients."""

import ssl
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import ErrorTable, Host, NoAnswer, UrlForm, client_library

SECRET = "hunter2"


class Failure(Exception):
    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


def codes(error: Exception) -> tuple[int | str, ...]:
    return (error.code, f"{error.code // 100}xx") if isinstance(error, Failure) else ()


TABLE = ErrorTable(
    "Pigeon",
    {
        404: (Unavailable, "there is no such loft"),
        "4xx": (Refused, "the loft refused"),
        TimeoutError: (NoAnswer, "the pigeon is late"),
        OSError: (NoAnswer, "the pigeon is lost"),
        Failure: (Unavailable, "the pigeon failed"),
    },
    opening={403: (ConfigError, "{where} rejects us: feed it")},
    codes=codes,
)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (Failure(404, "nobody"), Unavailable, "there is no such loft (nobody)"),
        (Failure(403, "no"), Refused, "the loft refused (no)"),
        (Failure(500, "oh"), Unavailable, "the pigeon failed (oh)"),
        (TimeoutError(), NoAnswer, "the pigeon is late (TimeoutError)"),
        (ConnectionError("cat"), NoAnswer, "the pigeon is lost (cat)"),
    ],
)
def test_codes_are_looked_up_before_classes_and_the_first_class_wins(
    error: Exception, kind: type[DeadLetterError], text: str
) -> None:
    with pytest.raises(DeadLetterError) as caught, TABLE.translated():
        raise error

    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert caught.value.__cause__ is error


def test_a_text_can_begin_with_what_was_being_done() -> None:
    ours = TABLE.translate(Failure(404, "nobody"), "feeding")

    assert str(ours) == "feeding: there is no such loft (nobody)"


def test_a_wrong_setting_is_an_error_of_the_url_only_while_opening() -> None:
    table = ErrorTable(
        "Pigeon",
        {Failure: (Refused, "the pigeon refused")},
        configuration={403: "the loft rejects us: feed it"},
        codes=codes,
    )

    opening = table.translate_opening(Failure(403, "hungry"), "roof:1")
    running = table.translate(Failure(403, "hungry"), "roof:1")

    assert (type(opening), type(running)) == (ConfigError, Unavailable)
    assert str(opening) == str(running) == "roof:1: the loft rejects us: feed it (hungry)"


def test_errors_of_others_and_our_own_pass_untranslated() -> None:
    with pytest.raises(KeyError), TABLE.translated():
        raise KeyError("x")
    ours = Refused("ours")
    assert TABLE.translate(ours) is ours
    with TABLE.translated():
        pass


def test_an_answer_is_translated_by_its_codes() -> None:
    ours = TABLE.translate_answer((410, "4xx"), "gone", "feeding")

    assert isinstance(ours, Refused)
    assert str(ours) == "feeding: the loft refused (gone)"


def test_an_extended_table_has_its_rows_first() -> None:
    table = TABLE.extended({404: (Refused, "never")})

    assert isinstance(table.translate(Failure(404)), Refused)
    assert isinstance(TABLE.translate(Failure(404)), Unavailable)
    assert isinstance(table.translate(OSError()), NoAnswer)


def test_errors_at_opening_say_where_and_what_to_do() -> None:
    rejected = TABLE.translate_opening(Failure(403, "hungry"), "roof:1")
    lost = TABLE.translate_opening(OSError("cat"), "roof:1", "Is the window open?")
    other = TABLE.translate_opening(Failure(404, "nobody"), "roof:1")

    assert isinstance(rejected, ConfigError)
    assert str(rejected) == "roof:1 rejects us: feed it (hungry)"
    assert str(lost) == (
        "no answer from roof:1: is Pigeon running, and is the URL right? Is the window open? (cat)"
    )
    assert isinstance(lost, Unavailable)
    assert str(other) == "roof:1: there is no such loft (nobody)"


def test_trouble_with_tls_is_recognised_behind_other_errors() -> None:
    error = ConnectionError("closed")
    error.__cause__ = ssl.SSLError("bad certificate")

    ours = TABLE.translate_opening(error, "roof:1")

    assert isinstance(ours, ConfigError)
    assert "?cafile=" in str(ours)


class Options(Struct, frozen=True, kw_only=True):
    flights: Annotated[int, Meta(ge=1, le=9)] = 3
    weight: Annotated[int, Meta(ge=0)] | None = None
    breed: Literal["racer", "tumbler"] = "racer"
    night: bool = False
    ring: Annotated[str, Meta(pattern=r"\A[a-z]*\Z", description="small letters")] = ""
    cafile: str | None = None


URL = UrlForm(
    "Pigeon",
    {"coo": 7, "coos": 8, "coo+unix": None},
    Options,
    example="coo://host:7/loft",
    tls_schemes=["coos"],
    tls_options=["cafile"],
    socket_schemes=["coo+unix"],
    is_client_option=lambda name: "." in name,
)
FLOCK = UrlForm("Pigeon", {"coo": None}, Options, example="…", many_hosts=True, default_host=None)


def test_a_url_is_taken_apart_and_decoded() -> None:
    url = URL.read(
        f"coo://an%40na:{SECRET}%2F@roof:70/a%20b?flights=9&night=true&breed=tumbler&x.y=z"
    )

    assert (url.scheme, url.hosts, url.is_tls) == ("coo", (Host("roof", 70),), False)
    assert (url.user, url.password, url.path) == ("an@na", f"{SECRET}/", "/a b")
    assert url.options == Options(flights=9, night=True, breed="tumbler")
    assert url.client_options == {"x.y": "z"}
    assert url.client_url == f"coo://an%40na:{SECRET}%2F@roof:70/a%20b?x.y=z"
    assert url.where == "roof:70"


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("coo://", "localhost:7"),
        ("coos://roof", "roof:8"),
        ("coo://[::1]:70", "[::1]:70"),
        (f"coo+unix://:{SECRET}@/run/coo.sock", "/run/coo.sock"),
    ],
)
def test_a_url_says_where_without_its_password(url: str, where: str) -> None:
    assert URL.read(url).where == where


def test_several_hosts_where_the_form_allows_them() -> None:
    assert FLOCK.read("coo://one:1,two").hosts == (Host("one", 1), Host("two"))
    assert FLOCK.read("coo://").hosts == ()
    with pytest.raises(ConfigError, match="name one host"):
        URL.read("coo://one,two")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"coo://anna:{SECRET}@roof:x", "cannot be read"),
        (f"coo://anna:{SECRET}@roof:0", "cannot be read"),
        (f"coo://anna:{SECRET}@roof:99999", "cannot be read"),
        (f"coo://anna:{SECRET}@[roof", "cannot be read"),
        # A password with a raw / ? or # ends the authority too early.
        (f"coo://anna:12/{SECRET}@roof", "cannot be read"),
        (f"coo://anna:12?{SECRET}@roof", "cannot be read"),
        (f"coo://anna:12#{SECRET}@roof", "cannot be read"),
        (f"dove://anna:{SECRET}@roof", "begin with coo:// or coos://"),
        (f"coo+unix://anna:{SECRET}@roof", "names a socket"),
        (f"coo://a:{SECRET}@roof?fligths=1", r"did you mean 'flights'\?\); known are: flights"),
        (f"coo://a:{SECRET}@roof?zzz=1", "unknown parameter 'zzz' in the Pigeon URL; known"),
        ("coo://roof?flights=10", "flights in the Pigeon URL must be a number from 1 to 9"),
        ("coo://roof?flights=", "must be a number from 1 to 9, got ''"),
        ("coo://roof?weight=-1", "must be a number, at least 0, got '-1'"),
        ("coo://roof?breed=fantail", "must be racer or tumbler, got 'fantail'"),
        ("coo://roof?night=perhaps", "must be true or false, got 'perhaps'"),
        (f"coo://roof?ring=//a:{SECRET}@B", "must be small letters, got 'B'"),
        ("coo://roof?cafile=ca.pem", "cafile in the Pigeon URL needs TLS: .* coos://"),
        ("coos://roof?cafile=/nowhere/ca.pem", "/nowhere/ca.pem in the Pigeon URL cannot be read"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        URL.read(url)

    assert SECRET not in str(caught.value)


def test_certificates_are_files_that_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("…")

    assert URL.read(f"coos://roof?cafile={file}").options.cafile == str(file)


def test_a_missing_client_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[birds\]'"):  # noqa: SIM117
        with client_library("coo", "birds", "pigeon"):
            raise ModuleNotFoundError(name="pigeon.wings")
    with pytest.raises(ModuleNotFoundError), client_library("coo", "birds", "pigeon"):
        raise ModuleNotFoundError(name="doves")
