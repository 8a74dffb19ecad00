"""Limited callers cannot affect the mailboxes of others."""

from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.queue_server.routes import CALLS
from deadletter.server.context import ServerContext
from server.auth.conftest import Client, bearer
from server.auth.role_table import TABLE
from server.conftest import token

QUEUES = "/api/v1/queues"
LEASES = {"lease_timeout": "1m", "expire_timeout": "1h"}
NAMED = {"queue_name": "", **LEASES}


@pytest.fixture
async def root(visitor: Client, guarded: ServerContext, admin: str) -> dict[str, str]:
    """Mailboxes of two teams: `orders` is the dead queue of `mails`, `hidden` of `secret`."""
    root = bearer(admin)
    for name, dead in (
        *(("orders", None), ("mails", "orders"), ("free", None)),
        *(("hidden", None), ("secret", "hidden")),
    ):
        made = await visitor.post(QUEUES, json={"name": name, "dead_queue": dead}, headers=root)
        assert made.status_code == 201, made.text
        lent = await visitor.post(
            "/v1/queues.create",
            json={**NAMED, "queue_name": name, "dead_queue": dead or ""},
            headers=root,
        )
        assert lent.status_code == 200, lent.text
    return root


@pytest.fixture
async def limited(guarded: ServerContext, root: dict[str, str]) -> dict[str, str]:
    """The headers of an administrator of `orders`, `free` and a missing mailbox."""
    shown = await token(guarded, Role.ADMIN, "orders", "free", "nosuch")
    return bearer(shown)


async def names(client: Client, root: dict[str, str]) -> tuple[set[str], set[str]]:
    """Return all mailboxes and lease queues, with their dead queues."""
    mailboxes = (await client.get(QUEUES, headers=root)).json()
    queues = (await client.post("/v1/queues.list", json={}, headers=root)).json()
    return (
        {f"{one['options']['name']}>{one['options']['dead_queue']}" for one in mailboxes},
        {f"{one['queue_name']}>{one['dead_queue']}" for one in queues["items"]},
    )


def requests(name: str) -> dict[tuple[str, str], tuple[str, Any]]:
    """Return all requests of both APIs that name a mailbox, as path and body."""
    found: dict[tuple[str, str], tuple[str, Any]] = {
        ("GET", f"{QUEUES}/{{name}}"): (f"{QUEUES}/{name}", None),
        ("PATCH", f"{QUEUES}/{{name}}"): (f"{QUEUES}/{name}", {"max_attempts": 1}),
        ("DELETE", f"{QUEUES}/{{name}}"): (f"{QUEUES}/{name}?force=true", None),
        ("POST", QUEUES): (QUEUES, {"name": name}),
    }
    for call in set(CALLS) - {"queues.list"}:
        force = {"force": True} if call == "queues.delete" else {}
        found["POST", f"/v1/{call}"] = (f"/v1/{call}", {"queue_name": name, **force})
    return found


ABOUT_ALL = {("GET", QUEUES), ("POST", "/v1/queues.list")}


def test_every_route_about_mailboxes_is_tried() -> None:
    about = {route for route in TABLE if route[1].startswith((QUEUES, "/v1/"))} - ABOUT_ALL

    assert set(requests("x")) == about


async def test_mailboxes_of_others_are_as_those_that_are_not_there(
    visitor: Client, root: dict[str, str], limited: dict[str, str]
) -> None:
    before = await names(visitor, root)
    wrong = {}
    for route, (path, body) in requests("mails").items():
        theirs = await visitor.request(route[0], path, json=body, headers=limited)
        other, asked = requests("xxxxx")[route]
        nobodys = await visitor.request(route[0], other, json=asked, headers=limited)
        if theirs.status_code != 404 or theirs.text.replace("mails", "xxxxx") != nobodys.text:
            wrong[route] = (theirs.status_code, theirs.text)

    assert wrong == {}
    assert await names(visitor, root) == before


@pytest.mark.parametrize("force", [False, True])
async def test_the_dead_queue_of_others_stays(
    visitor: Client, root: dict[str, str], limited: dict[str, str], force: bool
) -> None:
    before = await names(visitor, root)
    said = "true" if force else "false"

    answers = [
        await visitor.delete(f"{QUEUES}/orders?force={said}", headers=limited),
        await visitor.post(
            "/v1/queues.delete", json={"queue_name": "orders", "force": force}, headers=limited
        ),
    ]

    assert [answer.status_code for answer in answers] == [409, 409]
    assert all("mails" not in answer.text for answer in answers)
    assert await names(visitor, root) == before


async def test_refusals_name_no_mailbox_of_others(
    visitor: Client, root: dict[str, str], limited: dict[str, str]
) -> None:
    for body in ({"dead_queue": "free"}, {"expire_after": 10}):
        answer = await visitor.patch(f"{QUEUES}/orders", json=body, headers=limited)
        assert answer.status_code == 409, body
        assert "mails" not in answer.text
    for path, named in ((QUEUES, "name"), ("/v1/queues.create", "queue_name")):
        for dead in ("mails", "secret", "hidden"):
            body = {named: "nosuch", "dead_queue": dead}
            more = LEASES if named == "queue_name" else {}
            answer = await visitor.post(path, json={**body, **more}, headers=limited)
            nobodys = await visitor.post(
                path, json={**body, **more, "dead_queue": "xxx"}, headers=limited
            )
            assert answer.status_code in {400, 404}
            assert answer.text.replace(dead, "xxx") == nobodys.text
    lent = {"queue_name": "orders", "dead_queue": "free"}
    answer = await visitor.post("/v1/queues.update", json=lent, headers=limited)
    assert answer.status_code == 409
    assert "mails" not in answer.text


async def test_limited_callers_may_delete_their_own_queues(
    visitor: Client, root: dict[str, str], limited: dict[str, str]
) -> None:
    gone = await visitor.delete(f"{QUEUES}/free", headers=limited)
    lent = await visitor.post("/v1/queues.delete", json={"queue_name": "free"}, headers=limited)

    assert (gone.status_code, lent.status_code) == (200, 200)
