"""Security headers of every response."""

from litestar import Litestar, get
from litestar.testing import AsyncTestClient

from deadletter.server.auth.hosts import PAGES, POLICY, security_headers
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.auth.conftest import SESSION, Client, bearer

ASKED = [
    ("GET", SESSION, 200),
    ("DELETE", SESSION, 204),
    ("GET", "/api/v1/letters/nosuch", 404),
    ("GET", "/api/v1/nosuch", 404),
    ("PUT", SESSION, 405),
    ("POST", "/api/v1/tokens", 400),
    ("GET", "/nosuch", 404),
    ("GET", "/health/live", 200),
]


async def test_every_response_is_guarded(visitor: Client, admin: str) -> None:
    for method, path, status in ASKED:
        answer = await visitor.request(method, path, headers=bearer(admin))

        headers = answer.headers
        policy = headers["content-security-policy"]
        assert answer.status_code == status, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not {"unsafe", "http", "*"} & set(policy.replace("-", " ").split())


async def test_one_who_is_unknown_gets_them_too(visitor: Client) -> None:
    answer = await visitor.get(SESSION)

    assert answer.status_code == 401
    assert answer.headers["cache-control"] == "no-store"
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_a_body_of_others_runs_nothing(
    visitor: Client, admin: str, guarded: ServerContext
) -> None:
    letter = make_letter()
    await guarded.store.keep([letter])

    answer = await visitor.get(f"/api/v1/letters/{letter.id}/body", headers=bearer(admin))

    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src" not in policy
    assert "sandbox" in policy


async def test_a_page_of_ours_runs_what_is_ours_alone() -> None:
    @get("/page", response_headers={POLICY: PAGES, "cache-control": "max-age=60"})
    async def page() -> str:
        return "hello"

    app = Litestar([page], before_send=[security_headers], openapi_config=None)
    async with AsyncTestClient(app) as client:
        answer = await client.get("/page")

    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "max-age=60"
