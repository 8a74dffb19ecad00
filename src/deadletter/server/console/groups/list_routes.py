"""The route of the list of groups."""

from shlex import quote as quoted
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import QueryParameter

from deadletter.core.access import Role
from deadletter.office.groups import GroupOrder
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, path_to, render_page, render_part
from deadletter.server.context import Here, Who

from .group_list import PAGE, ListRequest, Tab, load_list, load_tabs

Text = Annotated[str, QueryParameter(max_length=200)]
Source = Annotated[str, QueryParameter(max_length=512)]
Hold = Annotated[str, QueryParameter(max_length=PAGE * 200)]
After = Annotated[str, QueryParameter(max_length=600)]


@get("/groups", guards=[needs(Role.READER)], include_in_schema=False)
async def show_groups(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    status: Annotated[Tab, QueryParameter()] = "listed",
    source: Source = "",
    text: Text = "",
    sort: Annotated[GroupOrder, QueryParameter()] = GroupOrder.LARGEST,
    after: After = "",
    hold: Hold = "",
    part: Annotated[Literal["rows", "tabs"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show groups of letters with the same cause, or one part of the page."""
    asked = ListRequest(tab=status, source=source, text=text.strip(), order=sort, after=after)
    if part == "tabs":
        return render_part(request, "groups/parts/tabs.html", await load_tabs(context, who, asked))
    page = await load_list(context, who, asked, tuple(filter(None, hold.split(","))))
    if part == "rows":
        return render_part(request, "groups/parts/rows.html", page)
    return await render_page(request, "groups/list.html", page, _about(asked))


def _about(asked: ListRequest) -> About:
    words = ["dlq groups"]
    given = {"limit": str(PAGE), "source": asked.source, "text": asked.text}
    if asked.tab == "all":
        words.append("--all")
        given["everything"] = "true"
    elif asked.tab != "listed":
        words.append(f"--status {asked.tab}")
        given["status"] = asked.tab
    words += [f"--{name} {quoted(given[name])}" for name in ("source", "text") if given[name]]
    if asked.order is not GroupOrder.LARGEST:
        words.append(f"--order {asked.order}")
        given["order"] = asked.order.value
    return About(
        title="Groups", screen="groups", command=" ".join(words), api=path_to("groups", **given)
    )


routes: Final[list[Any]] = [show_groups]
