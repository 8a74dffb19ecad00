"""
Fetch the console's vendored files anew: `make vendor`.

Packages have exact versions. htmx is copied as it is; the icons of Lucide that the console
uses become one sprite. `VENDORED` lists every file with its version and SHA-256, and a test
compares them.
"""

import hashlib
import re
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parent.parent
VENDOR: Final = ROOT / "src/deadletter/server/console/static/vendor"
LIST: Final = "VENDORED"

HTMX: Final = "htmx.org@4.0.1"
LUCIDE: Final = "lucide-static@1.62.0"
COPIED: Final = {
    "dist/htmx.min.js": "htmx.min.js",
    "dist/ext/hx-ptag.min.js": "hx-ptag.min.js",
    "LICENSE": "LICENSE.htmx",
}
ICONS: Final = tuple(
    """
    archive ban bell bell-off book-open chart-line check chevron-down chevron-left chevron-right
    chevron-up circle circle-alert circle-check circle-dot circle-help circle-pause circle-play
    circle-stop circle-x clock copy corner-down-left diff download ellipsis eraser external-link
    file-text flask-conical funnel gauge history house inbox info key-round keyboard layers link
    list-checks lock log-out mail mails menu moon octagon-alert pencil play plus radio
    refresh-cw rotate-ccw scroll-text search send server settings shield-alert square star sun tag
    terminal trash-2 triangle triangle-alert undo-2 upload user users volume-x x
    """.split()  # noqa: SIM905 -- a hundred quotes less
)


def main() -> None:
    """Fetch the packages, write the files and their list."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    versions = {}
    with TemporaryDirectory() as folder:
        htmx = _unpacked(HTMX, Path(folder) / "htmx")
        for source, name in COPIED.items():
            (VENDOR / name).write_bytes((htmx / source).read_bytes())
            versions[name] = HTMX
        lucide = _unpacked(LUCIDE, Path(folder) / "lucide")
        (VENDOR / "icons.svg").write_text(_sprite(lucide / "icons"))
        (VENDOR / "LICENSE.lucide").write_bytes((lucide / "LICENSE").read_bytes())
        versions["icons.svg"] = versions["LICENSE.lucide"] = LUCIDE
    lines = [f"{sha256(VENDOR / name)}  {name}  {versions[name]}" for name in sorted(versions)]
    (VENDOR / LIST).write_text("\n".join(lines) + "\n")


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _unpacked(package: str, folder: Path) -> Path:
    folder.mkdir()
    pack = ["npm", "pack", "--silent", package, "--pack-destination", str(folder)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder / "package"


def _sprite(icons: Path) -> str:
    symbols = [_symbol(name, (icons / f"{name}.svg").read_text()) for name in ICONS]
    return f'<svg xmlns="http://www.w3.org/2000/svg">\n{"".join(symbols)}</svg>\n'


def _symbol(name: str, svg: str) -> str:
    drawn = re.sub(
        r"\s*\n\s*", "", svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    )
    return f'<symbol id="i-{name}" viewBox="0 0 24 24">{drawn}</symbol>\n'


if __name__ == "__main__":
    main()
