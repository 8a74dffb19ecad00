"""Cross-site requests to recorded routes are rejected."""

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import AuditEntry
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.auth.conftest import Client, acts, bearer, sign_in
from server.conftest import token

ACROSS = ("cross-site", "same-site", "nonsense", "")
OURS = ("same-origin", "none")  # `none`: typed, or a bookmark


@pytest.fixture
async def recorded(guarded: ServerContext) -> list[str]:
    """Return the paths of all GET requests that are recorded in the audit."""
    letter = make_letter()
    await guarded.store.keep([letter])
    under = f"/api/v1/letters/{letter.id}"
    return [f"{under}/message", f"{under}/body", f"{under}/original", "/api/v1/export"]


async def looks(context: ServerContext) -> list[AuditEntry]:
    return [one for one in await acts(context) if one.action in {"reveal", "export"}]


async def test_with_a_session_only_our_own_pages_may_look(
    visitor: Client, guarded: ServerContext, admin: str, recorded: list[str]
) -> None:
    await sign_in(visitor, admin)
    for path in recorded:
        for site in ACROSS:
            answer = await visitor.get(path, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 403, (path, site)
        # Over plain http browsers do not say where they come from.
        assert (await visitor.get(path)).status_code == 403, path

    assert await looks(guarded) == []

    for path in recorded:
        for site in OURS:
            answer = await visitor.get(path, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 200, (path, site)
    assert len(await looks(guarded)) == len(recorded) * len(OURS)


async def test_the_proof_of_a_session_is_enough(
    visitor: Client, admin: str, recorded: list[str]
) -> None:
    proof = await sign_in(visitor, admin)

    for path in recorded:
        assert (await visitor.get(path, headers=proof)).status_code == 200
        across = {**proof, "Sec-Fetch-Site": "cross-site"}
        assert (await visitor.get(path, headers=across)).status_code == 403


async def test_a_token_is_never_sent_by_another_site(
    visitor: Client, guarded: ServerContext, recorded: list[str]
) -> None:
    shown = bearer(await token(guarded, Role.OPERATOR))

    for path in recorded:
        assert (await visitor.get(path, headers=shown)).status_code == 200


async def test_with_access_off_other_sites_lead_nobody_here(
    api: Client, guarded: ServerContext, recorded: list[str]
) -> None:
    for path in recorded:
        for site in ACROSS:
            answer = await api.get(path, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 403, (path, site)
    assert await looks(guarded) == []

    for path in recorded:
        assert (await api.get(path)).status_code == 200, path


async def test_looking_that_is_not_recorded_is_for_links_as_well(
    visitor: Client, admin: str, recorded: list[str]
) -> None:
    await sign_in(visitor, admin)

    answer = await visitor.get("/api/v1/letters", headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 200
