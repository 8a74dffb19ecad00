"""The queue server applies the same access rules as the API."""

import pytest

from deadletter.core.access import Role
from deadletter.queue_server.routes import CALLS
from deadletter.server.context import ServerContext
from server.auth.conftest import Client, bearer
from server.conftest import token

ORDERS = {"queue_name": "orders", "lease_timeout": "1m", "expire_timeout": "1h"}


@pytest.fixture
async def limited(visitor: Client, guarded: ServerContext, admin: str) -> dict[str, str]:
    """The headers of a caller who sees one of two queues."""
    for name in ("orders", "mails"):
        made = await visitor.post(
            "/v1/queues.create", json={**ORDERS, "queue_name": name}, headers=bearer(admin)
        )
        assert made.status_code == 200, made.text
    return bearer(await token(guarded, Role.ADMIN, "orders", "nosuch"))


async def test_a_limited_token_uses_what_it_sees(visitor: Client, limited: dict[str, str]) -> None:
    wanted = {"queue_name": "orders", "request_timeout": "9s", "items": [{"utf8": "hi"}]}

    made = await visitor.post("/v1/queue.produce", json=wanted, headers=limited)

    assert made.status_code == 200


async def test_a_queue_of_others_is_as_one_that_is_not_there(
    visitor: Client, limited: dict[str, str]
) -> None:
    for call in set(CALLS) - {"queues.list"}:
        theirs, nobodys = [
            await visitor.post(f"/v1/{call}", json={"queue_name": name}, headers=limited)
            for name in ("mails", "xxxxx")
        ]

        assert theirs.status_code == nobodys.status_code == 404, call
        assert theirs.text.replace("mails", "xxxxx") == nobodys.text


async def test_dead_letters_are_not_sent_to_a_queue_of_others(
    visitor: Client, limited: dict[str, str]
) -> None:
    wanted = {"queue_name": "orders", "dead_queue": "mails"}

    answer = await visitor.post("/v1/queues.update", json=wanted, headers=limited)

    assert answer.status_code == 404


async def test_limited_callers_may_not_list_all_queues(
    visitor: Client, limited: dict[str, str]
) -> None:
    answer = await visitor.post("/v1/queues.list", json={}, headers=limited)

    assert answer.status_code == 403


async def test_with_access_off_no_other_site_is_answered(api: Client) -> None:
    ours = await api.post("/v1/queues.list", json={})
    across = await api.post("/v1/queues.list", json={}, headers={"Origin": "https://evil.example"})
    renamed = await api.post("/v1/queues.list", json={}, headers={"Host": "evil.example"})

    codes = (ours.status_code, across.status_code, renamed.status_code)
    assert codes == (200, 403, 403)


async def test_answers_of_the_queue_server_are_guarded_too(visitor: Client) -> None:
    answer = await visitor.post("/v1/queues.list", json={})

    assert answer.headers["cache-control"] == "no-store"
    assert "sandbox" in answer.headers["content-security-policy"]
