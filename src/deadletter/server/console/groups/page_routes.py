"""The routes of the list of groups, and of one group."""

from shlex import quote as quoted
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import PathParameter, QueryParameter
from msgspec import structs

from deadletter.core.access import Role
from deadletter.office.groups import GroupOrder
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, path_to, redirect, render_page, render_part
from deadletter.server.context import Here, Who
from deadletter.server.search import Searches

from .common import load_common, load_texts
from .group_list import PAGE, ListRequest, Tab, load_list, load_tabs
from .group_page import ChartPart, Part, Span, find, load_chart, load_page, load_part

Text = Annotated[str, QueryParameter(max_length=200)]
Source = Annotated[str, QueryParameter(max_length=512)]
Hold = Annotated[str, QueryParameter(max_length=PAGE * 200)]
After = Annotated[str, QueryParameter(max_length=600)]
Fingerprint = Annotated[str, PathParameter(max_length=200)]


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


@get("/groups/{fp:str}", guards=[needs(Role.READER)], include_in_schema=False)
async def show_group(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    fp: Fingerprint,
    range: Annotated[Span | None, QueryParameter()] = None,
    part: Annotated[Part | Literal["deaths", "common", "variants"] | None, QueryParameter()] = None,
    show: Annotated[Literal["common", "variants"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show one group, or one part of its page; a name that is no longer its own leads on."""
    group = await find(context, who, fp)
    if part == "common":
        common = await load_common(context, who, searching, group.fingerprint)
        return render_part(request, "groups/parts/common.html", common)
    if part == "variants":
        texts = await load_texts(context, who, searching, group.fingerprint)
        return render_part(request, "groups/parts/variants.html", texts)
    if group.fingerprint != fp:
        return redirect(path_to("groups", group.fingerprint, range=range or "", part=part or ""))
    if part == "deaths":
        chart = await load_chart(context, who, group, range)
        return render_part(request, "groups/parts/deaths.html", ChartPart(chart=chart))
    if part is not None:
        found = await load_part(context, who, searching, group, part)
        return render_part(request, f"groups/parts/{part}.html", found)
    page = await load_page(context, who, searching, group, range)
    if show == "common":  # asked for without scripts
        common = await load_common(context, who, searching, group.fingerprint)
        page = structs.replace(page, common=common)
    elif show == "variants":
        texts = await load_texts(context, who, searching, group.fingerprint)
        page = structs.replace(page, texts=texts)
    title = f"{page.head.error} in {page.head.source}"
    about = About(
        title=title,
        screen="groups",
        command=f"dlq groups show {quoted(group.fingerprint)}",
        api=path_to("groups", group.fingerprint),
    )
    return await render_page(request, "groups/group.html", page, about)


routes: Final[list[Any]] = [show_groups, show_group]
