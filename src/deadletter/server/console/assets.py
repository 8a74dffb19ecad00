"""
Files that pages load: scripts, styles, icons.

All are read once, when the server starts: styles become one file, and so do the modules of
scripts. Their URL has a digest over all of them, so browsers may keep them for good, and a new
version of one gives new URLs to all.
"""

import gzip
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from litestar import Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

_STATIC: Final = Path(__file__).parent / "static"
_STYLES: Final = (
    *("tokens", "base", "shell", "table", "form", "parts"),
    *("chart", "overview", "groups", "letters", "letter", "replays", "queues", "running"),
    *("repairs", "print"),
)
_SCRIPTS: Final = ("app.js", "boot.js", "door.js")
_IMPORT: Final = re.compile(r'^import (\{ [\w, ]+ \} from )?"\./(\w+\.js)";\n', re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*(?:/\*.*?\*/|//[^\n]*)\n", re.DOTALL | re.MULTILINE)
_ICONS: Final = ("icon.svg", "icon-alarm.svg")
_VENDORED: Final = ("htmx.min.js", "hx-ptag.min.js", "icons.svg")
_KINDS: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


class Asset(Struct, frozen=True):
    """One file, as it is and compressed."""

    kind: str
    raw: bytes
    packed: bytes


class Assets(Struct, frozen=True):
    """All files by name, and the digest over them."""

    digest: str
    files: dict[str, Asset]

    def url(self, name: str) -> str:
        """Return the URL of a file. Raises KeyError if there is no such file."""
        if name not in self.files:
            raise KeyError(name)
        return f"/static/{self.digest}/{name}"


def load_assets() -> Assets:
    """Read and compress all files."""
    styles = b"\n".join((_STATIC / f"css/{name}.css").read_bytes() for name in _STYLES)
    found = {"console.css": dense(styles)}
    found |= {name: (_STATIC / name).read_bytes() for name in _ICONS}
    found |= {name: (_STATIC / "vendor" / name).read_bytes() for name in _VENDORED}
    found |= {name: bundle(name).encode() for name in _SCRIPTS}
    digest = blake2b(digest_size=8)
    for name, raw in sorted(found.items()):
        digest.update(b"%s %d:" % (name.encode(), len(raw)))
        digest.update(raw)
    files = {name: _asset(name, raw) for name, raw in found.items()}
    return Assets(digest.hexdigest(), files)


def dense(styles: bytes) -> bytes:
    """Return style sheets without comments and needless spaces, a tenth smaller when compressed."""
    text = re.sub(r"/\*.*?\*/", "", styles.decode(), flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r" ?([{};,]) ?", r"\1", text)
    text = re.sub(r" ([>~]) ", r"\1", text)  # not +, which needs its spaces in calc()
    text = re.sub(r"(?<=[ :(,-])0\.", ".", text)
    return text.replace(": ", ":").replace(";}", "}").strip().encode()


def bundle(name: str) -> str:
    """
    Return a script with those that it imports, without comments that have lines of their own.

    Each one that is imported as a whole becomes a block, so that its names stay its own; one
    whose names are imported stands where they are used.
    """
    text = _COMMENT.sub("", (_STATIC / "js" / name).read_text())
    text = re.sub(r"^(?:export )?[ \t]*", "", text, flags=re.MULTILINE)

    def inlined(found: re.Match[str]) -> str:
        other = bundle(found[2])
        return other if found[1] else f"{{\n{other}}}\n"

    return _IMPORT.sub(inlined, text)


def _asset(name: str, raw: bytes) -> Asset:
    return Asset(_KINDS[Path(name).suffix], raw, gzip.compress(raw, 9, mtime=0))


def is_packed(request: Request[Any, Any, Any]) -> bool:
    """Return whether the client accepts compressed answers."""
    return "gzip" in request.headers.get("accept-encoding", "")


@get("/static/{digest:str}/{name:str}", include_in_schema=False)
async def get_asset(
    request: Request[Any, Any, Any], digest: FromPath[str], name: FromPath[str]
) -> Response[bytes]:
    """Return a file. Every version of the server has its own URLs."""
    assets: Assets = request.app.state.console.assets
    asset = assets.files.get(name)
    if digest != assets.digest or asset is None:
        raise NotFoundException
    headers = {"cache-control": _FOREVER, "vary": "accept-encoding"}
    if not is_packed(request):
        return Response(asset.raw, media_type=asset.kind, headers=headers)
    headers["content-encoding"] = "gzip"
    return Response(asset.packed, media_type=asset.kind, headers=headers)


routes: Final[list[Any]] = [get_asset]
