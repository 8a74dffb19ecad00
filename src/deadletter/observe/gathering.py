"""The numbers of several processes as one text for Prometheus."""

import re
from collections.abc import Mapping
from typing import Final

_HELP: Final = b"# HELP "
_TYPE: Final = b"# TYPE "
_NAME: Final = re.compile(rb"([a-zA-Z0-9_:]+)(\{?)")


def gathered(texts: Mapping[str, bytes]) -> bytes:
    """
    What each process tells, one text after the other made one.

    Every number has a label `process` more. They are not added up: one that is
    started again begins at zero, and a sum that falls means nothing.
    """
    families: dict[bytes, list[bytes]] = {}
    for process, text in texts.items():
        label = f'process="{process}"'.encode()
        family: list[bytes] = []
        for line in text.split(b"\n"):
            if line.startswith(_HELP):
                family = families.setdefault(line, [line])
            elif line.startswith(_TYPE):
                family += [line] if len(family) == 1 else []
            elif found := _NAME.match(line):
                rest = line[found.end() :]
                labels = label + (b"," if found[2] else b"}")
                family.append(found[1] + b"{" + labels + rest)
    lines = [line for family in families.values() for line in family]
    return b"\n".join([*lines, b""])
