"""dlq searches: searches with a name, which everybody shares."""

from cyclopts import App

from deadletter.core.text import clean

from .desk import AtDesk
from .options import Flag, Reason
from .ui import Name, ago, cell, firm_column, name_column, table

app = App(
    name="searches", help="List, save and delete searches with a name.", help_format="markdown"
)


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the saved searches, which everybody shares."""
    async with desk.office() as office:
        found = await office.searches.list()
    if desk.as_json:
        for search in found:
            desk.document(search)
        return
    if not found:
        desk.tell("No search is saved yet; `dlq searches save NAME QUERY` saves one.")
        return
    now = desk.clock.now()
    shown = table()
    name_column(shown, "name")
    name_column(shown, "search")
    name_column(shown, "saved by")
    firm_column(shown, "saved")
    for search in found:
        shown.add_row(
            Name(search.name, "cyan"),
            Name(search.query),
            Name(search.saved_by),
            cell(ago(search.saved_at, now)),
        )
    desk.show(shown)


@app.command
async def save(
    name: str, query: str, /, *, replace: Flag = False, reason: Reason = "", desk: AtDesk
) -> None:
    """
    Save a search under a name.

    Args:
        name: The name, of up to 80 characters.
        query: The search.
        replace: Replace the search that has this name.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        saved = await office.searches.save(name, query, desk.by(reason), replace=replace)
    if desk.as_json:
        desk.document(saved)
    else:
        desk.tell(f"Saved the search {clean(saved.name)}: {clean(saved.query)}")


@app.command
async def delete(name: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Delete a saved search. Letters are not changed.

    Args:
        name: The name of the search.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        gone = await office.searches.delete(name, desk.by(reason))
    if desk.as_json:
        desk.document(gone)
    else:
        desk.tell(f"Deleted the search {clean(gone.name)}; it was: {clean(gone.query)}")
