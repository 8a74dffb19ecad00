"""
The servers that tests can use: which are here, and how to get the others.

The embedded engines need none of them. As root on Debian, what is missing is
installed; otherwise this says what to do. Exit code 0 either way: a test whose
server is missing is skipped with a reason.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Service:
    """A program that some tests need."""

    name: str
    program: str  # on the PATH, or below one of Debian's own places
    package: str  # Debian's
    used_for: str


SERVICES = (
    Service("tmux", "tmux", "tmux", "looking at the command in a real terminal"),
    Service("strace", "strace", "strace", "making fsync fail on purpose"),
    Service("faketime", "faketime", "faketime", "clocks that step"),
)


def main() -> int:
    """Say what is here; install what can be."""
    print(f"  here     sqlite {sqlite3.sqlite_version} (part of Python)")
    missing = [service for service in SERVICES if not shutil.which(service.program)]
    if missing and _is_debian_root():
        packages = [service.package for service in missing]
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"]
        subprocess.run([*install, *packages], check=False, stdout=subprocess.DEVNULL)
    for service in SERVICES:
        found = shutil.which(service.program)
        state = "here   " if found else "missing"
        hint = "" if found else f"; install the package {service.package}"
        print(f"  {state}  {service.name}: for {service.used_for}{hint}")
    return 0


def _is_debian_root() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists()


if __name__ == "__main__":
    sys.exit(main())
