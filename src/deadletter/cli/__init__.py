"""The `dlq` command: what a person can do, from a terminal."""

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run `dlq` and end the process with its exit code."""
    from .app import run  # noqa: PLC0415 -- so that importing this costs nothing

    sys.exit(run(sys.argv[1:] if argv is None else argv))
