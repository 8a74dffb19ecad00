"""
Write the parts of the documentation that are made from the code.

    python docs/generate.py            write tables and pictures anew (make docs)
    python docs/generate.py --check    list the pages that are out of date

A page marks the place of a table. `facts.settings_table` makes this one:

    <!-- table: settings -->
    <!-- end -->

The tables of a system go between `<!-- ledger: relayer -->` and the same end.
"""

# ruff: noqa: INP001, T201 -- a script

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import facts
import pictures
from ledger_facts import InvalidLedger, ledger_tables

HERE = Path(__file__).parent
_TABLE = re.compile(r"(<!-- (table|ledger): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> Iterator[tuple[Path, str]]:
    """Yield every file that is written here, with its text."""
    for page in sorted([HERE.parent / "README.md", *HERE.glob("*.md"), *HERE.glob("systems/*.md")]):
        yield page, _TABLE.sub(_table, page.read_text())
    for name, picture in pictures.draw().items():
        yield HERE / "pictures" / name, picture


def _table(found: re.Match[str]) -> str:
    head, kind, name, end = found.groups()
    if kind == "ledger":
        return f"{head}{ledger_tables(name)}\n{end}"
    make: Callable[[], str] = getattr(facts, f"{name}_table")
    return f"{head}{make()}\n{end}"


def main() -> int:
    """Write the files that are out of date, or only list them."""
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
    except InvalidLedger as error:
        sys.exit(str(error))
