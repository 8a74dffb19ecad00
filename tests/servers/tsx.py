"""Node with tsx, which runs the TypeScript of examples; `make services` fetches it."""

import shutil
from pathlib import Path

from servers.common import INSTALLED, ROOT, Missing

SOURCE = ROOT / "examples/courier"
HOME = INSTALLED / "tsx"
FILES = ("package.json", "package-lock.json")
READY = HOME / ".ready"


def find() -> tuple[Path, Path]:
    """Return Node and the program of tsx. Raises Missing if one of them is not here."""
    node = shutil.which("node")
    if node is None:
        raise Missing("Node is missing: install Node 20 or later, and npm")
    if not READY.exists():
        raise Missing("tsx is missing: run `make services`")
    return Path(node), HOME / "node_modules/tsx/dist/cli.mjs"
