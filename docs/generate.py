"""
What the documentation says about the code, written by the code.

    python docs/generate.py            writes tables and pictures anew (make docs)
    python docs/generate.py --check    says which pages are out of date

A page says where a table goes; this one is made by `facts.settings_table`:

    <!-- table: settings -->
    <!-- end -->

The ledger of a system goes between `<!-- ledger: relayer -->` and such an end.
"""

# ruff: noqa: INP001, T201 -- a script

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import facts
import pictures
from ledger_facts import Unreadable, ledger_table

HERE = Path(__file__).parent
_TABLE = re.compile(r"(<!-- (table|ledger): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that is written here, as it should be."""
    for page in sorted([*HERE.glob("*.md"), *HERE.glob("systems/*.md")]):
        yield page, _TABLE.sub(_table, page.read_text())
    for name, picture in pictures.draw().items():
        yield HERE / "pictures" / name, picture


def _table(found: re.Match[str]) -> str:
    head, kind, name, end = found.groups()
    if kind == "ledger":
        return f"{head}{ledger_table(name)}\n{end}"
    make: Callable[[], str] = getattr(facts, f"{name}_table")
    return f"{head}{make()}\n{end}"


def main() -> int:
    """Write what is out of date, or only say so."""
    is_check = "--check" in sys.argv
    stale = [
        (file, text) for file, text in generated() if not file.exists() or file.read_text() != text
    ]
    for file, text in stale:
        name = file.relative_to(HERE.parent)
        print(f"{name} is out of date: make docs" if is_check else f"wrote {name}")
        if not is_check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unreadable as error:
        sys.exit(str(error))
