"""The whole office: audit, statistics, export and import."""

import json

from litestar.testing import AsyncTestClient

from deadletter.core.access import Role
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings
from office.making import BY, make_letter, make_letters
from server.api.conftest import Api, Caller
from server.conftest import context_of


async def test_the_audit_is_paged_and_can_be_asked_about_one_thing(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    await context.office.letters.review([letter.id for letter in letters], BY)

    first = (await api.get("/api/v1/audit", params={"limit": 2})).json()
    rest = (await api.get("/api/v1/audit", params={"after": first["after"]})).json()

    seqs = [entry["seq"] for entry in first["entries"] + rest["entries"]]
    assert seqs == [1, 2, 3]
    assert rest["after"] is None
    one = {"target": letters[0].id}
    assert len((await api.get("/api/v1/audit", params=one)).json()["entries"]) == 1


async def test_the_audit_of_others_is_theirs(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    theirs, ours = make_letter(1, source="mails"), make_letter(2)
    await guarded.store.keep([theirs, ours])
    await guarded.office.letters.review([theirs.id, ours.id], BY)
    anna = await caller(Role.READER, "orders")

    seen = (await guarded_api.get("/api/v1/audit", headers=anna)).json()["entries"]

    assert [entry["target"] for entry in seen] == [ours.id]


async def test_numbers_are_those_of_the_callers_mailboxes(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    now = guarded.clock.now()
    await guarded.store.keep([make_letter(1, source="mails", now=now), make_letter(2, now=now)])

    whole = await guarded_api.get("/api/v1/stats", headers=await caller(Role.READER))
    part = await guarded_api.get("/api/v1/stats", headers=await caller(Role.READER, "orders"))

    assert whole.json()["letters"] == {"pending": 2}
    assert part.json()["letters"] == {"pending": 1}
    assert list(part.json()["sources"]) == ["orders"]
    assert [one["count"] for one in part.json()["arrivals"]] == [1, 1]


async def test_exported_letters_can_be_imported_elsewhere(api: Api, context: ServerContext) -> None:
    letters = make_letters(3, body=b"\x00\xff")
    await context.store.keep(letters)

    exported = await api.get("/api/v1/export", params={"query": "source:orders"})

    assert exported.headers["content-type"].startswith("application/x-ndjson")
    assert exported.headers["content-disposition"].startswith("attachment")
    assert len(exported.content.splitlines()) == 5
    await context.store.purge([letters[0].id], BY)
    checked = await api.post("/api/v1/import?dry_run=true", content=exported.content)
    assert checked.json() == {"added": 0, "known": 0, "wrong": 0, "problems": []}
    assert await context.store.get([letters[0].id]) == []
    taken = await api.post("/api/v1/import?archive=friday&reason=restore", content=exported.content)
    assert taken.json() == {"added": 1, "known": 2, "wrong": 0, "problems": []}
    assert (await context.office.letters.get(letters[0].id)).message == letters[0].message
    said = [(e.action, e.detail) for e in await context.store.audit(target="friday")]
    assert said[-1] == ("import", "1 letter added, 2 known already")


async def test_a_wrong_line_is_named(api: Api, context: ServerContext) -> None:
    await context.store.keep(make_letters(1))
    exported = (await api.get("/api/v1/export")).content
    letter = json.loads(exported.splitlines()[1])
    letter["letter"]["head"]["id"] = "a" * 24
    forged = exported.splitlines()[0] + b"\n" + json.dumps(letter).encode()

    for content in (forged, b"", b"{}", b"\xff"):
        answer = await api.post("/api/v1/import", content=content)
        assert answer.status_code == 400
        assert "\n  line " in answer.json()["detail"]


async def test_nothing_of_a_cut_archive_is_taken_unless_it_is_salvaged(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(5)
    await context.store.keep(letters)
    exported = (await api.get("/api/v1/export")).content
    await context.store.purge([letter.id for letter in letters], BY)
    cut = b"".join(exported.splitlines(keepends=True)[:4])

    refused = await api.post("/api/v1/import", content=cut)
    before = await context.store.counts()
    taken = await api.post("/api/v1/import?salvage=true", content=cut)

    assert (refused.status_code, before) == (400, {})
    assert "the last line is missing" in refused.json()["detail"]
    assert (taken.json()["added"], taken.json()["wrong"]) == (3, 1)
    assert taken.json()["problems"][0]["line"] == 5


async def test_imports_are_limited_to_own_mailboxes(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await guarded.store.keep([make_letter(1, source="mails"), make_letter(2)])
    chief, anna = await caller(Role.ADMIN), await caller(Role.ADMIN, "orders")
    everything = (await guarded_api.get("/api/v1/export", headers=chief)).content

    part = (await guarded_api.get("/api/v1/export", headers=anna)).content
    answer = await guarded_api.post("/api/v1/import", content=everything, headers=anna)

    assert b"mails" not in part
    assert answer.status_code == 400


async def test_a_body_is_bounded(context: ServerContext) -> None:
    small = context_of(context.engine, settings=Settings(serve=Serve(body_limit=1000)))
    async with AsyncTestClient(build(small), base_url="http://127.0.0.1") as api:
        answers = [
            await api.post("/api/v1/import", content=b"x" * 1001),
            await api.post("/api/v1/letters/review", json={"query": "x" * 1001}),
        ]

    for answer in answers:
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"
