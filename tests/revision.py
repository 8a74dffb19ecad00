"""The commit that is checked out, and what has changed since."""

import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_MOST_NAMES = 5
_TESTED = ("src", "tests", "docs", "examples")  # other files may come and go beside a run


class Revision(NamedTuple):
    """
    A commit, and the names of files that differ from it or are new.

    Outside of git the commit is a digest of the files.
    """

    commit: str
    uncommitted: str


def current_revision(root: Path) -> Revision:
    """Ask git about the checkout in `root`."""
    commit = _git(root, "rev-parse", "HEAD").strip()
    if not commit:
        return Revision(_digest(root), "")
    status = ("status", "--porcelain", "--untracked-files=all", "--", *_TESTED)
    changes = _git(root, *status).splitlines()
    names = [line[3:] for line in changes]
    if len(names) > _MOST_NAMES:
        names = [*names[:_MOST_NAMES], f"and {len(names) - _MOST_NAMES} more"]
    return Revision(commit, ", ".join(names))


def _digest(root: Path) -> str:
    digest = sha256()
    for file in sorted(_files(root)):
        digest.update(f"{file.relative_to(root)}\0".encode() + sha256(file.read_bytes()).digest())
    return f"files-{digest.hexdigest()[:16]}"


def _files(root: Path) -> Iterator[Path]:
    for folder in _TESTED:
        for file in (root / folder).rglob("*"):
            if file.is_file() and file.suffix not in (".pyc", ".so"):
                yield file


def _git(root: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(
            ["git", "--no-optional-locks", "-C", root, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:  # git is not installed
        return ""
    return "" if ran.returncode else ran.stdout
