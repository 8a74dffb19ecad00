"""Routes of acts on groups: their dialogs, and the forms that they send."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import GroupStatus
from deadletter.core.text import cut, many
from deadletter.server.acting import group_acts
from deadletter.server.acting.group_acts import MOST, GroupsChanged, Stood
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    Console,
    done,
    is_partial,
    own_path,
    page_before,
    path_to,
    redirect,
    render_page,
    render_part,
)
from deadletter.server.console.undo_keys import Opposite
from deadletter.server.context import Here, ServerContext, Who

from . import sentences
from .act_dialogs import (
    Act,
    DialogAct,
    MergeDialog,
    SplitDialog,
    StandingDialog,
    back_to,
    change_of,
    merge_dialog,
    split_dialog,
    standing_dialog,
)
from .group_list import chosen_query

Fingerprint = Annotated[str, PathParameter(max_length=200)]
Ids = Annotated[list[str] | None, QueryParameter(max_length=MOST)]
ActName = Annotated[DialogAct, QueryParameter()]
_OPERATOR: Final = [needs(Role.OPERATOR)]
_Reason = Annotated[str, Meta(max_length=4_000)]
_Name = Annotated[str, Meta(max_length=200)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=MOST)]
_BY_ITSELF: Final = frozenset({GroupStatus.NEW, GroupStatus.REGRESSED})


class StandingForm(Struct, frozen=True, kw_only=True):
    """An act on how groups stand. The owner, version and ends are for some acts only."""

    act: Act
    id: _Names = ()
    span: str = ""
    until: Annotated[str, Meta(max_length=40)] = ""
    version: _Name = ""
    owner: _Name = ""
    reason: _Reason = ""
    back: str = ""


class MergeForm(Struct, frozen=True, kw_only=True):
    """Groups to merge: those chosen, the one that stays, and the name of another."""

    into: _Name = ""
    others: _Names = ()
    other: _Name = ""
    reason: _Reason = ""
    back: str = ""


class SplitForm(Struct, frozen=True, kw_only=True):
    """The letters to split off."""

    query: Annotated[str, Meta(max_length=1_000)]
    reason: _Reason = ""
    back: str = ""


class UndoForm(Struct, frozen=True, kw_only=True):
    """The reason for undoing a merge or a split."""

    reason: _Reason = ""


@get("/groups/dialog", guards=_OPERATOR, include_in_schema=False)
async def show_dialog(
    request: Request[Any, Any, Any], context: Here, who: Who, act: ActName, id: Ids = None
) -> Response[bytes]:
    """Show the dialog of an act on the chosen groups."""
    names = id or []
    return await _dialog(request, context, who, act, names)


@get("/groups/{fp:str}/dialog", guards=_OPERATOR, include_in_schema=False)
async def show_dialog_of_group(
    request: Request[Any, Any, Any], context: Here, who: Who, fp: Fingerprint, act: ActName
) -> Response[bytes]:
    """Show the dialog of an act on one group."""
    return await _dialog(request, context, who, act, [fp])


async def _dialog(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    act: DialogAct,
    names: Sequence[str],
) -> Response[bytes]:
    if act == "replay":
        if not names:
            raise ConfigError("choose at least one group")
        path = path_to("replays", "new", q=chosen_query(names))
        return _lead_to(request, path)
    before = page_before(request)
    back = before if before.startswith("/groups") and "/dialog" not in before else back_to(names)
    page: StandingDialog | MergeDialog | SplitDialog
    if act == "merge":
        url = path_to("groups", "merge")
        page = await merge_dialog(context, who, names, url=url, back=back)
        name = "merge"
    elif act == "split":
        if len(names) != 1:
            raise ConfigError("letters are split off one group: choose one")
        url = path_to("groups", names[0], "split")
        page = await split_dialog(context, who, names[0], url=url, back=back)
        name = "split"
    else:
        url = path_to("groups", "standing")
        page = await standing_dialog(context, who, act, names, url=url, back=back)
        name = "standing"
    if is_partial(request):
        return render_part(request, f"groups/dialogs/{name}.html", page)
    about = About(title=page.title, screen="groups")
    return await render_page(request, f"groups/dialogs/{name}_page.html", page, about)


def _lead_to(request: Request[Any, Any, Any], path: str) -> Response[bytes]:
    """Lead to another page, from a part as well."""
    if not is_partial(request):
        return redirect(path)
    return Response(b"", status_code=200, headers={"HX-Redirect": path})


@post(
    "/groups/standing",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def set_standings(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Set how the chosen groups stand."""
    form = await read_form(request, StandingForm)
    return await _stand(request, context, who, form, form.id)


@post(
    "/groups/{fp:str}/standing",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def set_standing(
    request: Request[Any, Any, Any], context: Here, who: Who, fp: Fingerprint
) -> Response[bytes]:
    """Set how one group stands."""
    form = await read_form(request, StandingForm)
    return await _stand(request, context, who, form, [fp])


async def _stand(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    form: StandingForm,
    names: Sequence[str],
) -> Response[bytes]:
    if form.act in {"assign", "mine"}:
        owner = who.name if form.act == "mine" else form.owner
        result = await group_acts.assign_groups(context, who, names, owner, reason=form.reason)
        what = f"is assigned to {cut(owner, sentences.NAME)}" if owner else "is nobody's now"
    else:
        change = change_of(
            form.act,
            context.clock.now(),
            span=form.span,
            until=form.until,
            version=form.version,
            reason=form.reason,
        )
        result = await group_acts.set_standings(context, who, names, change)
        what = _fate(result)
    _check_any(result)
    console: Console = request.app.state.console
    undo = console.undoing.keep(who, _opposite(result.changed), size=len(result.changed))
    notice = Notice(text=sentences.changed_told(result, what), undo=undo)
    return done(request, notice, to=_back(request, form.back, names))


def _fate(result: GroupsChanged) -> str:
    if not result.changed:
        return ""
    line = result.changed[0].after
    told = f"is {line.status}"
    if line.status is GroupStatus.RESOLVED and line.version:
        told += f" in {cut(line.version, sentences.NAME)}"
    if line.until is not None:
        told += f" until {line.until:%Y-%m-%d %H:%M} UTC"
    return told


def _check_any(result: GroupsChanged) -> None:
    """Raise the reason if an act changed nothing at all."""
    if not result.changed:
        raise Conflict(next(iter(result.left.values())))


def _opposite(changed: Sequence[Stood]) -> Opposite:
    async def undo(context: ServerContext, who: Identity) -> Notice:
        result = await group_acts.take_back(context, who, changed)
        back = {one.after.fingerprint for one in result.changed}
        new = sum(
            one.before.status in _BY_ITSELF and one.before.fingerprint in back for one in changed
        )
        return Notice(text=sentences.taken_back_told(result, new))

    return undo


@post(
    "/groups/merge",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def merge(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Merge the chosen groups into one of them."""
    form = await read_form(request, MergeForm)
    return await _merge(request, context, who, form, form.into)


@post(
    "/groups/{fp:str}/merge",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def merge_into(
    request: Request[Any, Any, Any], context: Here, who: Who, fp: Fingerprint
) -> Response[bytes]:
    """Merge other groups into this one."""
    return await _merge(request, context, who, await read_form(request, MergeForm), fp)


async def _merge(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    form: MergeForm,
    into: str,
) -> Response[bytes]:
    if not into:
        raise ConfigError("choose the group that stays")
    others = [name for name in dict.fromkeys((*form.others, form.other.strip())) if name]
    others = [name for name in others if name != into]
    # By their whole names, so that undoing it means these groups and no others.
    joining = [
        (await context.office.groups.get(name, sources=who.sources)).fingerprint for name in others
    ]
    merged = await group_acts.merge_groups(context, who, into, joining, reason=form.reason)
    console: Console = request.app.state.console
    undo = console.undoing.keep(who, _unmerge(joining), size=max(merged.moved, 1))
    notice = Notice(
        text=f"{many(len(joining), 'group')} merged: {many(merged.moved, 'letter')} moved to"
        f" {cut(merged.group, sentences.NAME)}, and new ones follow.",
        undo=undo,
        link=path_to("groups", merged.group),
        link_text="Open the group",
    )
    return done(request, notice, to=path_to("groups", merged.group))


@post(
    "/groups/{fp:str}/split",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def split(
    request: Request[Any, Any, Any], context: Here, who: Who, fp: Fingerprint
) -> Response[bytes]:
    """Split letters off a group."""
    form = await read_form(request, SplitForm)
    found = await group_acts.split_group(context, who, fp, form.query, reason=form.reason)
    console: Console = request.app.state.console
    undo = console.undoing.keep(who, _unmerge([found.group]), size=max(found.moved, 1))
    text = f"{many(found.moved, 'letter')} moved to a group of their own, and new ones follow."
    if not found.moved:
        text = "No letter matches now; new ones that do will have a group of their own."
    path = path_to("groups", found.group)
    notice = Notice(
        text=text,
        undo=undo,
        link=path if found.moved else "",
        link_text="Open the new group" if found.moved else "",
    )
    return done(request, notice, to=_back(request, form.back, [fp]))


@post(
    "/groups/{fp:str}/undo",
    guards=_OPERATOR,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def undo_grouping(
    request: Request[Any, Any, Any], context: Here, who: Who, fp: Fingerprint
) -> Response[bytes]:
    """Undo the last merge or split of a group."""
    form = await read_form(request, UndoForm)
    found = await group_acts.undo_grouping(context, who, fp, reason=form.reason)
    text = (
        f"Undone: {many(found.moved, 'letter')} moved back to {cut(found.group, sentences.NAME)}."
    )
    notice = Notice(text=text, link=path_to("groups", found.group), link_text="Open the group")
    return done(request, notice, to=_back(request, "", [fp]))


def _unmerge(names: Sequence[str]) -> Opposite:
    async def undo(context: ServerContext, who: Identity) -> Notice:
        moved, left = 0, []
        for name in reversed(names):
            try:
                result = await group_acts.undo_grouping(context, who, name, reason="undone")
                moved += result.moved
            except (NotFound, Conflict) as error:
                left.append(str(error))
        text = f"Undone: {many(moved, 'letter')} moved back."
        return Notice(text=" ".join([text, *left[:3]]))

    return undo


def _back(request: Request[Any, Any, Any], asked: str, names: Sequence[str]) -> str:
    """Return the page to go back to without scripts: the one that the dialog was opened on."""
    path = own_path(asked) if asked else page_before(request)
    is_ours = path == "/groups" or path.startswith(("/groups?", "/groups/"))
    return path if is_ours and "/dialog" not in path else back_to(names)


routes: Final[list[Any]] = [
    *(show_dialog, show_dialog_of_group, set_standings, set_standing),
    *(merge, merge_into, split, undo_grouping),
]
