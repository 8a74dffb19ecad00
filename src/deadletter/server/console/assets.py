"""
Files that pages load: scripts, styles, icons.

All are read once, when the server starts. Their URL has a digest over all of them, so
browsers may keep them for good, and a new version of one gives new URLs to all.
"""

import gzip
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
_SCRIPTS: Final = "js"
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
    found = {"console.css": styles}
    found |= {name: (_STATIC / name).read_bytes() for name in _ICONS}
    found |= {name: (_STATIC / "vendor" / name).read_bytes() for name in _VENDORED}
    found |= {file.name: file.read_bytes() for file in sorted((_STATIC / _SCRIPTS).glob("*.js"))}
    digest = blake2b(digest_size=8)
    for name, raw in sorted(found.items()):
        digest.update(b"%s %d:" % (name.encode(), len(raw)))
        digest.update(raw)
    files = {name: _asset(name, raw) for name, raw in found.items()}
    return Assets(digest.hexdigest(), files)


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
