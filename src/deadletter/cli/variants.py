"""What the letters of a group have in common, as tables."""

from typing import Final

from deadletter.core.variants import ValueCount, Variants

from .desk import Desk
from .tables import (
    cell,
    firm_column,
    indented,
    number_column,
    percent,
    table,
    text_column,
)

_TEXTS: Final = 5  # shown to a person; --json has more
_TRAITS: Final = 10
_VALUES: Final = 3


def show_variants(desk: Desk, found: Variants) -> None:
    """Show what letters share, and the different texts of their errors."""
    if not found.looked_at:
        desk.tell("None of its letters is there any more.", "dim")
        return
    desk.tell(f"What they share, {_sample(found)}:")
    shown = table()
    firm_column(shown, "field")
    number_column(shown, "letters")
    number_column(shown, "others")
    text_column(shown, "value")
    for trait in [one for one in found.traits if one.tells][:_TRAITS]:
        for n, one in enumerate(trait.values[:_VALUES]):
            shown.add_row(
                cell("" if n else trait.field, "cyan"),
                cell(_share(one.count, found.looked_at)),
                cell(_share(one.elsewhere, found.compared), "dim"),
                cell(one.value),
            )
        if trait.distinct > _VALUES:
            more = f"… {trait.distinct - _VALUES:,} other values"
            shown.add_row("", "", "", cell(more, "dim"))
    desk.show(indented(shown))
    masked = [one.field for one in found.traits if one.is_masked]
    own = [one.field for one in found.traits if not (one.tells or one.is_masked)]
    for what, fields in (
        ("hardly ever the same", own),
        ("masked, so not compared", masked),
    ):
        if fields:
            desk.tell(f"  {what}: {', '.join(fields)}", "dim")
    desk.tell("")
    many = "text" if found.distinct_texts == 1 else "texts"
    desk.tell(f"{found.distinct_texts:,} error {many}, without what varies:")
    texts = table()
    number_column(texts, "letters")
    text_column(texts, "text")
    for text in found.texts[:_TEXTS]:
        texts.add_row(cell(_share(text.count, found.looked_at)), cell(_text(text)))
    desk.show(indented(texts, below=1))


def _sample(found: Variants) -> str:
    sample = f"of the newest {found.looked_at:,} of {found.letters:,} letters"
    if found.opened < found.looked_at:
        sample += f" (contents of {found.opened:,})"
    if found.compared:
        sample += f", beside {found.compared:,} others of the mailbox"
    return sample


def _share(n: int, of: int) -> str:
    if not of:
        return "-"
    return percent(n / of)


def _text(text: ValueCount) -> str:
    return text.value or "(no text)"
