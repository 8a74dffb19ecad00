"""The commit that is checked out, and what has changed since."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_MOST_NAMES = 5


class Revision(NamedTuple):
    """A commit, and the names of changed or untracked files; no commit outside of git."""

    commit: str
    uncommitted: str


def current_revision(root: Path) -> Revision:
    """Ask git about the checkout in `root`."""
    commit = _git(root, "rev-parse", "HEAD").strip()
    changes = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    names = [line[3:] for line in changes]
    if len(names) > _MOST_NAMES:
        names = [*names[:_MOST_NAMES], f"and {len(names) - _MOST_NAMES} more"]
    return Revision(commit, ", ".join(names))


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
