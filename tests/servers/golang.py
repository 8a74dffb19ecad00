"""
Go, for clients of the queue server in that language.

A program is built once for each run of the tests, outside of the repository. Modules come
through Go's own cache and proxy settings.
"""

import os
import shutil
import subprocess
from pathlib import Path

from servers.common import Missing

_PATIENCE = 600.0  # seconds that a build may take on a busy machine


def find() -> Path:
    """Return the path of `go`; raises Missing without it."""
    program = shutil.which("go")
    if program is None:
        raise Missing("Go is not installed: install Go 1.22 or later (package golang-go)")
    return Path(program)


def build(module: Path, program: Path) -> Path:
    """Build the program in a module, and return its path."""
    _go(module, "build", "-o", str(program), ".")
    return program


def build_tests(module: Path, program: Path) -> Path:
    """Build the tests of a module as a program, and return its path."""
    _go(module, "test", "-c", "-o", str(program), ".")
    return program


def build_tool(module: Path, package: str, program: Path) -> Path:
    """Build a program of a module that this one depends on, and return its path."""
    _go(module, "build", "-o", str(program), package)
    return program


def _go(module: Path, *words: str) -> None:
    done = subprocess.run(
        [find(), *words],
        cwd=module,
        env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(words)} failed in {module}:\n{done.stderr[-4000:]}")
