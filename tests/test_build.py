"""Builds of the package: with the compiled library, and without where it must be."""

import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = "deadletter/stores/sqlite/_ofd_locks.so"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources alone, as a fresh clone has them."""
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    return tree


def build(tree: Path, target: str, **environ: str) -> tuple[Path, str]:
    """Build, and return the file and what was said."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", "out"],
        cwd=tree,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = (tree / "out").iterdir()
    return built, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="OFD locks are Linux's")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_wheel_has_the_compiled_library(tree: Path, tmp_path: Path) -> None:
    wheel, _ = build(tree, "wheel")

    assert "-py3-none-linux" in wheel.name
    with ZipFile(wheel) as archive:
        library = archive.extract(LIBRARY, tmp_path)
    assert ctypes.CDLL(library).dlq_ofd_holds


@pytest.mark.slow
def test_without_a_compiler_a_wheel_is_built_that_says_so(tree: Path) -> None:
    wheel, said = build(tree, "wheel", CC="missing-compiler")

    assert wheel.name.endswith("-py3-none-any.whl")
    assert "the C compiler missing-compiler cannot be run" in said or (sys.platform != "linux")
    with ZipFile(wheel) as archive:
        assert LIBRARY not in archive.namelist()


@pytest.mark.slow
def test_the_source_distribution_can_be_built_from(tree: Path) -> None:
    sdist, _ = build(tree, "sdist")

    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", "src/deadletter/stores/sqlite/ofd_locks.c"} <= names
    assert f"src/{LIBRARY}" not in names
