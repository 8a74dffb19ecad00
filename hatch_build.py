"""
Compiles ofd_locks.c when the package is built or installed.

Without a C compiler, or on systems other than Linux, the package is built without it:
it works, and `dlq doctor` says that the locks of SQLite can be dropped.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "deadletter", "stores", "sqlite")
SOURCE = "ofd_locks.c"
LIBRARY = "_ofd_locks.so"
FLAGS = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]


class OfdLocksHook(BuildHookInterface):
    """Puts the compiled library into wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as made for this platform."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / FOLDER
        problem = compile_library(folder / SOURCE, folder / LIBRARY)
        if problem is not None:
            self.app.display_warning(
                f"{LIBRARY} was not built, so other code in a process can drop the"
                f" locks of SQLite: {problem}"
            )
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(f"/{(FOLDER / LIBRARY).as_posix()}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"  # it uses nothing of Python


def compile_library(source: Path, library: Path) -> str | None:
    """Compile the library; return why that was not possible, if it was not."""
    library.unlink(missing_ok=True)
    if sys.platform != "linux":
        return f"{sys.platform} has no open file description locks"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    # Under another name first: a library that is loaded must not change.
    fresh = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        subprocess.run(  # noqa: S603 -- the compiler that the builder names
            [*compiler, *FLAGS, "-o", os.fspath(fresh), os.fspath(source)],
            check=True,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        return f"the C compiler {compiler[0]} cannot be run ({error.strerror})"
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]} failed:\n{error.stderr}"
    fresh.rename(library)
    return None
