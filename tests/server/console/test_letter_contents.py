"""Bodies and headers on the page of a letter: slices, forms, folds, masks, revealing."""

import json

import pytest

from deadletter.core.access import Role
from deadletter.core.message import Message
from deadletter.office.triage.layout import Form
from deadletter.server.console.bounds import shortened, weight
from deadletter.server.console.letter.contents import HEADERS, body_of, headers_of
from deadletter.server.context import ServerContext
from html_pages import Page
from office.making import NOW
from server.console.conftest import Browser, SignedIn
from server.console.letter_rig import BODY, actions, kept, section, sent


def code(page: Page) -> str:
    """Return the text of the body as somebody would copy it."""
    return section(page, "body").find("div", class_="code").raw


async def test_json_is_laid_out_and_masked(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)

    page = await browser.get(f"/letters/{letter.id}")

    shown = json.loads(code(page))
    assert shown == {"id": "o-17", "amount": "500", "password": "[redacted]"}
    assert "hunter2" not in page.html


@pytest.mark.parametrize(
    ("form", "shown"),
    [("raw", '{"id": "o-17", "amount": "500", "password": [redacted]}'), ("hex", "000000  7b 22")],
)
async def test_other_forms_are_links(
    browser: Browser, context: ServerContext, form: str, shown: str
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    other = await browser.get(page.link(form))

    assert code(other).strip().startswith(shown)
    assert section(other, "body").find("a", aria_current="true").text == form
    assert "hunter2" not in other.html


async def test_deep_and_long_values_are_folded_and_still_there(
    browser: Browser, context: ServerContext
) -> None:
    value = {"a": {"b": {"c": {"d": 1}}}, "many": list(range(30)), "few": [1, 2]}
    letter = await kept(context, body=json.dumps(value).encode())

    page = await browser.get(f"/letters/{letter.id}")

    folds = section(page, "body").all("details")
    notes = [one.find("summary")["data-note"] for one in folds]
    assert notes == ["1 member", "30 values"]
    assert json.loads(code(page)) == value


async def test_a_long_document_is_shown_in_slices_without_scripts(
    browser: Browser, context: ServerContext
) -> None:
    value = [{"number": n, "text": "x" * 50} for n in range(3_000)]
    letter = await kept(context, body=json.dumps(value).encode())

    page = await browser.get(f"/letters/{letter.id}")
    text, pages = code(page), 1
    while more := [one for one in section(page, "body").all("a") if "Show more" in one.text]:
        page = await browser.get(more[0]["href"])
        text += code(page)
        pages += 1

    assert pages > 2
    assert json.loads(text) == value


async def test_scripts_get_the_next_slice_alone(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context, body=b"[" + b",".join([b"1234567"] * 20_000) + b"]")
    page = await browser.get(f"/letters/{letter.id}")
    (more,) = [one for one in section(page, "body").all("a") if "Show more" in one.text]

    part = await browser.part(more["hx-get"])

    assert part.find(class_="contents").all(class_="code")
    assert part.all("h2") == []


async def test_revealing_is_recorded_first_and_shown_second(
    guarded: ServerContext, signed_in: SignedIn
) -> None:
    letter = await kept(guarded)
    operator = await signed_in(Role.OPERATOR, name="olga")
    page = await operator.get(f"/letters/{letter.id}")
    assert await actions(guarded, letter) == []

    shown = await operator.submit(page.form(button="Reveal"))

    assert json.loads(code(shown))["password"] == "hunter2"
    assert "Bearer abcdefghijklmnopqrstuvwxyz" in section(shown, "headers").text
    assert operator.last is not None
    assert "content-encoding" not in operator.last.headers, "its length would tell of secrets"
    assert operator.last.headers["cache-control"] == "no-store"
    (entry,) = await guarded.store.audit(target=letter.id)
    assert (entry.action, entry.actor) == ("reveal", "olga")


async def test_revealed_contents_have_no_address(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context)

    page = await browser.get(f"/letters/{letter.id}/contents/revealed")

    assert browser.path == f"/letters/{letter.id}"
    assert "hunter2" not in page.html
    assert await actions(context, letter) == []


async def test_scripts_get_revealed_contents_as_a_part(
    browser: Browser, context: ServerContext
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    part = await browser.submit(page.form(button="Reveal"), hx=True)
    forms = part.form(button="pretty")
    hexed = await browser.post(forms.action, hx=True, **sent(forms, shape="hex"))

    assert part.find(id="contents").text.startswith("Body not masked")
    assert "hunter2" in part.html
    assert "74 65 72 32 22 7d" in hexed.text
    assert await actions(context, letter) == ["reveal", "reveal"]


async def test_each_revealed_slice_is_recorded(browser: Browser, context: ServerContext) -> None:
    body = b'{"password": "hunter2", "all": [' + b",".join([b"1234567"] * 20_000) + b"]}"
    letter = await kept(context, body=body)
    page = await browser.get(f"/letters/{letter.id}")

    first = await browser.submit(page.form(button="Reveal"))
    await browser.submit(first.form(button="Show more"))

    assert await actions(context, letter) == ["reveal", "reveal"]


async def test_nothing_is_revealed_if_it_cannot_be_recorded(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await kept(context)
    page = await browser.get(f"/letters/{letter.id}")

    async def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(type(context.store), "record", fail)
    said = await browser.submit(page.form(button="Reveal"), status=500)

    assert "hunter2" not in said.html


async def test_headers_come_in_pages(browser: Browser, context: ServerContext) -> None:
    letter = await kept(context, headers={f"h{n}": str(n) for n in range(60)})

    page = await browser.get(f"/letters/{letter.id}")
    names = [one.text for one in section(page, "headers").all("dt")]
    while more := [one for one in section(page, "headers").all("a") if "More" in one.text]:
        page = await browser.get(more[0]["href"])
        names += [one.text for one in section(page, "headers").all("dt")]

    assert names == [f"h{n}" for n in range(60)]


@pytest.mark.parametrize("start", [-1, 2**40])
async def test_impossible_starts_are_refused(
    browser: Browser, context: ServerContext, start: int
) -> None:
    letter = await kept(context)

    await browser.get(f"/letters/{letter.id}?start={start}", status=400)


def test_an_empty_body_says_so() -> None:
    body = body_of(b"")

    assert [row.text for row in body.rows] == ["(empty)"]
    assert body.after is None


@pytest.mark.parametrize(
    "body",
    [
        b"&" * 200_000,
        b'"' * 200_000,
        b"\x00" * 200_000,
        b"[" + b'"&&&&",' * 60_000 + b"1]",
        b"[" * 90 + b"1," * 50_000 + b"1" + b"]" * 90,
        "\u202e".encode() * 60_000,
        b"\n" * 200_000,
        bytes(range(256)) * 400,
    ],
)
@pytest.mark.parametrize("form", Form)
def test_a_slice_is_small_on_a_page_whatever_is_in_it(body: bytes, form: Form) -> None:
    shown = body_of(body, form=form)

    assert sum(weight(row.text + row.name) + len(row.indent) for row in shown.rows) <= 120_000
    assert shown.rows


def test_folds_end_where_they_began() -> None:
    body = json.dumps({"a": {"b": {"c": {"d": [{}] * 40}}}}).encode()

    rows = body_of(body).rows

    assert sum(bool(row.folds) for row in rows) == sum(len(row.closes) for row in rows)


def test_headers_with_secret_names_and_values_are_masked() -> None:
    headers = (("x-api-key", b"k"), ("note", b"password=hunter2"), ("n", b"\xff\n"))
    message = Message(id="m", body=BODY, sent_at=NOW, headers=headers)

    masked, clear = headers_of(message), headers_of(message, reveal=True)

    assert [row.value for row in masked.rows] == ["[redacted]", "password=[redacted]", r"\xff\n"]
    assert [row.is_masked for row in masked.rows] == [True, False, False]
    assert [row.value for row in clear.rows] == ["k", "password=hunter2", r"\xff\n"]


def test_only_some_headers_are_on_one_page() -> None:
    headers = tuple((f"h{n}", b"v") for n in range(HEADERS + 1))
    message = Message(id="m", body=b"", sent_at=NOW, headers=headers)

    page = headers_of(message)
    last = headers_of(message, HEADERS)

    assert (len(page.rows), page.total, page.after) == (HEADERS, HEADERS + 1, HEADERS)
    assert ([row.name for row in last.rows], last.after) == ([f"h{HEADERS}"], None)


@pytest.mark.parametrize("text", ["&" * 99, "\u202e" * 99, "😀" * 99, "\ud800" * 99, "x" * 99])
def test_texts_are_shortened_by_what_they_weigh(text: str) -> None:
    assert weight(shortened(text, 50).removesuffix("…")) <= 50
    assert shortened(text, 50).endswith("…")
    assert shortened("short", 50) == "short"
