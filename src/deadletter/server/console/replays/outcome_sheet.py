"""What became of each letter of a replay, as a CSV sheet to download."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.params import PathParameter
from litestar.response import Stream

from deadletter.core.access import Role
from deadletter.core.campaign import ReplayItem
from deadletter.office.exports import outcome_sheet
from deadletter.server.acting import replay_acts
from deadletter.server.auth.guards import needs, while_authorized
from deadletter.server.context import Here, ServerContext, Who

_PAGE: Final = 1_000  # letters of one query


@get("/replays/{name:str}/sheet", guards=[needs(Role.READER)], include_in_schema=False)
async def download_outcomes(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    name: Annotated[str, PathParameter(max_length=64)],
) -> Stream:
    """Download the outcomes of a replay, in sending order."""
    campaign = await replay_acts.find(context, who, name)
    return Stream(
        while_authorized(request, outcome_sheet(_pages(context, campaign.id))),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="replay-{campaign.id[:8]}.csv"'},
    )


async def _pages(context: ServerContext, id_: str) -> AsyncIterator[Sequence[ReplayItem]]:
    after: int | None = 0
    while after is not None:
        page = await context.office.replays.outcomes(id_, after=after, limit=_PAGE)
        yield page.items
        after = page.after


routes: Final[list[Any]] = [download_outcomes]
