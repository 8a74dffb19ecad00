"""Roles of routes: every route is in the table, and every role is tried on it."""

from collections.abc import Iterator

from litestar import Litestar
from litestar.routes import ASGIRoute, HTTPRoute

from deadletter.core.access import RANK, Role
from deadletter.queue_server.routes import CALLS
from deadletter.server.app import build
from deadletter.server.auth.guards import OPEN, Needs
from deadletter.server.context import ServerContext
from server.auth.asking import status_of
from server.auth.role_table import TABLE
from server.conftest import token


def test_every_route_is_in_the_table(guarded: ServerContext) -> None:
    found = set(routes(build(guarded)))

    assert found - set(TABLE) == set(), "new routes: say in role_table.py who may"
    assert set(TABLE) - found == set(), "routes that are gone"


def test_every_route_asks_for_the_role_in_the_table(guarded: ServerContext) -> None:
    asked = dict(guards(build(guarded)))

    assert asked == {
        route: [] if role is None else [role]
        for route, role in TABLE.items()
        if not route[1].startswith("/v1/")
    }
    assert {route for route, role in TABLE.items() if role is None} == OPEN


async def test_each_role_is_let_in_where_it_may_and_nowhere_else(guarded: ServerContext) -> None:
    app = build(guarded)
    shown: dict[Role | None, str | None] = {None: None}
    for role in Role:
        shown[role] = await token(guarded, role)
    wrong = {}

    async with app.lifespan():
        for (method, path), least in TABLE.items():
            for role, secret in shown.items():
                status = await status_of(app, method, path, secret)
                if not _is_right(status, role, least):
                    wrong[method, path, role] = status

    assert wrong == {}


async def test_paths_below_a_mount_are_rejected_without_a_token(guarded: ServerContext) -> None:
    app = build(guarded)
    async with app.lifespan():
        for path in ("/v1", "/v1/nosuch", "/v1/../v1/queue.lease"):
            status = await status_of(app, "POST", path, None)
            assert status >= 400


async def test_asking_what_a_route_takes_tells_no_more_than_that(guarded: ServerContext) -> None:
    app = build(guarded)

    for method, path in TABLE:
        if not path.startswith("/v1/"):
            assert await status_of(app, "OPTIONS", path, None) == 204, (method, path)


def routes(app: Litestar) -> Iterator[tuple[str, str]]:
    """Return method and path of all routes, without OPTIONS."""
    yield from (route for route, _ in guards(app))
    for route in app.routes:
        if isinstance(route, ASGIRoute) and route.path == "/v1":
            yield from (("POST", f"/v1/{name}") for name in CALLS)
        elif not isinstance(route, HTTPRoute):
            yield type(route).__name__, route.path


def guards(app: Litestar) -> Iterator[tuple[tuple[str, str], list[object]]]:
    """Yield the HTTP routes with their guards."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                asked = [_role(guard) for guard in handler.resolve_guards()]
                for method in handler.http_methods - {"OPTIONS"}:
                    yield (str(method), route.path_format), asked


def _role(guard: object) -> object:
    return guard.role if isinstance(guard, Needs) else guard


def _is_right(status: int, role: Role | None, least: Role | None) -> bool:
    if least is not None and role is None:
        return status == 401
    if least is not None and role is not None and RANK[role] < RANK[least]:
        return status == 403
    if role is None and least is None:
        return status not in {403, 500}  # a wrong sign-in is a 401
    return status not in {401, 403, 500}
