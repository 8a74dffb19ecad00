"""dlq replay plan --letters: what to expect of each letter."""

from deadletter.core.verdicts import Verdict

from .desk import Desk
from .office import Office, Wish
from .tables import NARROW, Name, cell, short, table


async def show_verdicts(desk: Desk, office: Office, wish: Wish) -> None:
    """Each letter with its verdict, as they are judged."""
    width, is_first = desk.out.width, True
    async for some in office.verdicts(wish):
        if desk.as_json:
            for one in some:
                desk.document(one)
            continue
        shown = table()
        shown.show_header, is_first = is_first, False
        shown.add_column("letter", width=len(short("x" * 24, width)))
        shown.add_column("verdict", width=max(map(len, Verdict)))
        shown.add_column("to")
        if width >= NARROW:
            shown.add_column("source")
        for one in some:
            goes = wish.care.sends(one.verdict)
            shown.add_row(
                cell(short(one.letter_id, width), "cyan"),
                cell(one.verdict, "green" if one.verdict is Verdict.READY else ""),
                Name(one.target if goes else ""),
                *([Name(one.source)] if width >= NARROW else []),
            )
        desk.show(shown)
