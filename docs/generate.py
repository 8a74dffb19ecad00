"""
What the documentation says about the code, written by the code.

    python docs/generate.py            writes tables and pictures anew (make docs)
    python docs/generate.py --check    says which pages are out of date

A page says where a table goes; this one is made by `facts.settings_table`:

    <!-- table: settings -->
    <!-- end -->
"""

# ruff: noqa: INP001, T201 -- a script

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import facts
import pictures

HERE = Path(__file__).parent
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that is written here, as it should be."""
    for page in sorted(HERE.glob("*.md")):
        yield page, _TABLE.sub(_table, page.read_text())
    for name, picture in pictures.draw().items():
        yield HERE / "pictures" / name, picture


def _table(found: re.Match[str]) -> str:
    make: Callable[[], str] = getattr(facts, f"{found[2]}_table")
    return f"{found[1]}{make()}\n{found[3]}"


def main() -> int:
    """Write what is out of date, or only say so."""
    is_check = "--check" in sys.argv
    stale = [
        (file, text)
        for file, text in generated()
        if not file.exists() or file.read_text() != text
    ]
    for file, text in stale:
        name = file.relative_to(HERE.parent)
        print(f"{name} is out of date: make docs" if is_check else f"wrote {name}")
        if not is_check:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
