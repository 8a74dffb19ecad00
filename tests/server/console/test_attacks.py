"""
What attackers try on every page and act of the console.

The routes are those that the console has: a new one is tried without being named here.
"""

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from litestar.handlers import HTTPRouteHandler

from deadletter.core.access import Role
from deadletter.server.auth.guards import OPEN
from deadletter.server.console.routes import routes
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.console.conftest import Browser, SignedIn

pytestmark = pytest.mark.slow  # every attack on every route

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
HERE: Final = "http://dlq.example"
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
HOSTILE: Final = (
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "a\r\nset-cookie: x=1",
    "\u202egnp.exe",
    "../../../../etc/passwd",
    "{{7*7}}{%25 raw %25}",
    "%00",
    "x" * 3_000,
)


def handlers(method: str) -> Iterator[str]:
    """Yield the paths of all routes of the console with this method."""
    for handler in routes():
        assert isinstance(handler, HTTPRouteHandler)
        if method in handler.http_methods:
            yield from handler.paths


PAGES: Final = sorted(path for path in handlers("GET") if not path.startswith("/static"))
ACTS: Final = sorted(handlers("POST"))
GUARDED: Final = [path for path in ACTS if path != "/sign-in"]


def filled(path: str, value: str = "nothing") -> str:
    """Return a path with a value in place of its parameters."""
    return _PARAMETER.sub(lambda _: quote(value, safe=""), path)


def is_open(method: str, path: str) -> bool:
    return (method, _PARAMETER.sub(r"{\1}", path)) in OPEN


@pytest.fixture
async def admin(signed_in: SignedIn) -> Browser:
    found = await signed_in(Role.ADMIN)
    found.client.follow_redirects = False
    return found


def test_all_routes_are_tried() -> None:
    assert {"/", "/sign-in", "/access", "/system"} <= {*PAGES}
    assert {"/sign-in", "/sign-out", "/tokens", "/verify"} <= {*ACTS}


# Who has not signed in.


@pytest.mark.parametrize("path", [one for one in PAGES if not is_open("GET", one)])
async def test_strangers_see_no_page(stranger: Browser, path: str) -> None:
    stranger.client.follow_redirects = False
    page = await stranger.client.get(filled(path), headers={"accept": "text/html"})
    part = await stranger.client.get(
        filled(path), headers={"accept": "text/html", "hx-request": "true"}
    )

    assert (page.status_code, part.status_code) == (303, 401)
    assert page.headers["location"].startswith("/sign-in?next=")


@pytest.mark.parametrize("path", GUARDED)
async def test_strangers_do_nothing(stranger: Browser, guarded: ServerContext, path: str) -> None:
    stranger.client.follow_redirects = False
    answer = await stranger.client.post(filled(path), data={"csrf": "x"})

    assert answer.status_code == 401
    assert await guarded.store.audit(limit=1) == []


# Other sites.


PROOFLESS: Final[tuple[dict[str, Any], ...]] = (
    {"content": b"", "headers": FORM},
    {"content": b"csrf=", "headers": FORM},
    {"content": b"csrf=" + b"0" * 64, "headers": FORM},
    {"content": b"csrf=" + b"0" * 128, "headers": FORM},
    {"content": b"{}", "headers": {"content-type": "application/json"}},
    {"content": b"csrf=x", "headers": {"content-type": "text/plain"}},
    {"files": {"csrf": b"x"}},
)


@pytest.mark.parametrize("path", GUARDED)
async def test_no_act_without_the_proof_of_the_session(
    admin: Browser, guarded: ServerContext, path: str
) -> None:
    before = len(await guarded.store.audit(limit=1000))
    for sent in PROOFLESS:
        headers = {"accept": "text/html", "origin": "https://evil.example"}
        headers |= sent.get("headers", {})
        answer = await admin.client.post(filled(path), **{**sent, "headers": headers})

        assert answer.status_code == 403, sent
    assert len(await guarded.store.audit(limit=1000)) == before


async def test_the_proof_of_one_session_is_none_for_another(signed_in: SignedIn) -> None:
    anna = await signed_in(Role.ADMIN, name="anna")
    eve = await signed_in(Role.READER, name="eve")
    proof = await eve.csrf()

    answer = await anna.client.post("/sign-out", data={"csrf": proof})

    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": HERE, "sec-fetch-site": "cross-site"},
        {"origin": HERE, "sec-fetch-site": "same-site"},
        {"origin": "http://dlq.example.evil.example"},
        {"origin": "http://[::1"},
        {},
    ],
)
async def test_other_sites_sign_nobody_in(stranger: Browser, headers: dict[str, str]) -> None:
    answer = await stranger.client.post("/sign-in", data={"token": "x"}, headers=headers)

    assert answer.status_code == 403
    assert not stranger.client.cookies


async def test_with_access_off_other_sites_reach_nothing(browser: Browser) -> None:
    """A page of another site has a name that leads to this machine, or sends a form here."""
    for path in (*PAGES, *ACTS):
        method = "GET" if path in PAGES else "POST"
        for host in ("evil.example", "127.0.0.1.evil.example", "dlq.example:8418"):
            answer = await browser.client.request(method, filled(path), headers={"host": host})
            assert answer.status_code == 403, (path, host)
    for path in ACTS:
        headers = {**FORM, "origin": "https://evil.example"}
        answer = await browser.client.post(filled(path), content=b"", headers=headers)
        assert answer.status_code == 403, path


# What every answer says.


@pytest.mark.parametrize("path", PAGES)
async def test_pages_run_no_scripts_of_others_and_stand_in_no_frame(
    admin: Browser, path: str
) -> None:
    answer = await admin.client.get(filled(path), headers={"accept": "text/html"})

    assert answer.status_code < 500
    policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["referrer-policy"] in {"same-origin", "no-referrer"}


async def test_cookies_are_out_of_reach(signed_in: SignedIn, stranger: Browser) -> None:
    anna = await signed_in(Role.ADMIN, name="anna")
    (cookie,) = anna.client.cookies.jar

    assert cookie.name == "dlq"
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert str(cookie._rest.get("SameSite")).lower() == "lax"  # type: ignore[attr-defined]
    assert cookie.path == "/"
    assert not cookie.domain_specified


# Hostile addresses and forms.


@pytest.mark.parametrize("path", PAGES)
async def test_hostile_addresses_are_answered_and_run_nowhere(admin: Browser, path: str) -> None:
    addresses = [
        address
        for value in HOSTILE
        for address in (filled(path, value), f"{filled(path)}?{quote(value)}={quote(value)}")
    ]
    for address in dict.fromkeys(addresses):
        answer = await admin.client.get(address, headers={"accept": "text/html"})

        assert answer.status_code < 500, address[:200]
        assert "<script>alert" not in answer.text
        assert "x=1" not in answer.headers.get("set-cookie", "")
        assert "\u202e" not in answer.text
        assert len(answer.content) < 300 * 1024


@pytest.mark.parametrize("path", GUARDED)
async def test_hostile_forms_are_refused_in_words(admin: Browser, path: str) -> None:
    proof = await admin.csrf()
    bodies = (
        b"csrf=%b&nosuch=1" % proof.encode(),
        b"csrf=%b&" % proof.encode() + b"&".join(b"f%d=1" % n for n in range(3_000)),
        b"csrf=%b&id=%%00%%ff%%fe&name=%%ed%%a0%%80&expect=99999999999999999999" % proof.encode(),
    )
    for body in bodies:
        answer = await admin.client.post(
            filled(path), content=body, headers={**FORM, "accept": "text/html"}
        )
        assert answer.status_code < 500, answer.text[:500]
        if path == "/sign-out":
            return  # it takes no fields, and the session is over


@pytest.mark.parametrize("path", GUARDED)
async def test_forms_of_many_megabytes_are_not_read(admin: Browser, path: str) -> None:
    body = b"csrf=" + (await admin.csrf()).encode() + b"&reason=" + b"x" * (40 * 1024 * 1024)
    answer = await admin.client.post(filled(path), content=body, headers=FORM)

    assert answer.status_code in {400, 413}


async def test_a_sign_in_of_a_megabyte_is_not_read(stranger: Browser) -> None:
    answer = await stranger.client.post(
        "/sign-in", content=b"token=" + b"x" * 1_000_000, headers={**FORM, "origin": HERE}
    )

    assert answer.status_code == 413


@pytest.mark.parametrize("path", sorted({*PAGES, *ACTS}))
async def test_other_methods_do_nothing(admin: Browser, guarded: ServerContext, path: str) -> None:
    before = len(await guarded.store.audit(limit=1000))
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND"):
        answer = await admin.client.request(method, filled(path))
        assert answer.status_code in {400, 403, 404, 405, 501}, (method, answer.status_code)
    overridden = await admin.client.get(
        filled(path),
        headers={"x-http-method-override": "POST", "x-method-override": "POST"},
        params={"_method": "POST"},
    )

    assert overridden.status_code in {200, 303, 400, 401, 403, 404, 405, 409}
    assert len(await guarded.store.audit(limit=1000)) == before


@pytest.mark.parametrize(
    "name",
    [
        *("../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "..\\pages.py", "console.css/x"),
        *("/etc/passwd", "%2fetc%2fpasswd", "console.css%00.js", "VENDORED", "js/app.js"),
    ],
)
async def test_files_are_only_those_of_pages(browser: Browser, name: str) -> None:
    page = await browser.get("/")
    style = next(one["href"] for one in page.all("link") if one.get("rel") == "stylesheet")
    base = style.rpartition("/")[0]

    assert (await browser.client.get(f"{base}/{name}")).status_code in {400, 404}
    assert (await browser.client.get(style)).status_code == 200
    assert (await browser.client.get(style.replace(base, "/static/0"))).status_code == 404


# Tokens that are limited to some mailboxes.

HIDDEN: Final = "canary-of-the-payroll"
WORDS: Final = "words-of-the-payroll"


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_tells_of_mailboxes_that_one_may_not_see(
    signed_in: SignedIn, guarded: ServerContext, path: str
) -> None:
    now = guarded.clock.now()
    hidden = make_letter(7, source=HIDDEN, error_text=f"{WORDS} failed", now=now)
    await guarded.store.keep([hidden, make_letter(1, now=now)])
    for role in (Role.READER, Role.ADMIN):
        browser = await signed_in(role, "orders", name=f"{role}-of-orders")
        for value in (hidden.id, hidden.head.fingerprint, HIDDEN) if "{" in path else ("",):
            answer = await browser.client.get(filled(path, value), headers={"accept": "text/html"})

            assert answer.status_code < 500
            assert WORDS not in answer.text
            assert value == HIDDEN or HIDDEN not in answer.text  # what was asked may be named
