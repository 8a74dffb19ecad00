"""
Every claim, measured: `make bench`.

    python bench/run.py [--quick] [--install]

Peers that are not installed are installed, pinned and hashed. Figures go to
bench/results/ as JSON.
"""

import argparse
import shutil
import subprocess
import sys

from contest import BENCH, CONTESTANTS, RESULTS, present
from entrants import ENTRANTS, PEERS, has_bullmq

LOCK = BENCH.parent / "requirements-bench.lock"
SCRIPTS: dict[str, tuple[list[str], list[str]]] = {  # as usual, and when in a hurry
    "embedded": ([], ["--rounds", "1", "--scale", "0.2"]),
    "steady": ([], ["--messages", "100000", "--rounds", "1"]),
    "office": ([], ["--letters", "50000"]),
    "engines": ([], ["--rounds", "1", "--scale", "0.2"]),
    "server": ([], ["--rounds", "1", "--scale", "0.2"]),
    "console": ([], ["--letters", "20000", "--only", "sqlite", "--groups", "40"]),
    "courier": ([], ["--requests", "500"]),
}


def install_peers() -> None:
    """Install the peers that are missing, or say why there will be fewer."""
    everybody = [one for one in (*CONTESTANTS, *ENTRANTS) if one.module[-3:] != ".js"]
    if len(present(everybody)) < len(everybody):
        print("installing the peers to compare with, pinned and hashed ...", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "-q"]
        quiet = ["--disable-pip-version-check", "--no-deps", "--require-hashes"]
        _install([*pip, *quiet, "-r", str(LOCK)])
    if not has_bullmq() and shutil.which("npm") is not None:
        print("installing the peers for Node, pinned and hashed ...", flush=True)
        _install(["npm", "ci", "--ignore-scripts", "--no-audit", "--prefix", str(PEERS)])


def _install(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"Some cannot be installed here, so it goes without them: {reason}")


def main() -> int:
    """Run all scripts; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Every claim, measured.")
    parser.add_argument("--quick", action="store_true", help="small, rough, a minute")
    parser.add_argument("--install", action="store_true", help="the peers, no more")
    asked = parser.parse_args()
    install_peers()
    if asked.install:
        return 0
    failed = []
    for name, (usual, quick) in SCRIPTS.items():
        words = [str(BENCH / f"{name}.py"), "--json", str(RESULTS / f"{name}.json")]
        words += quick if asked.quick else usual
        if subprocess.run([sys.executable, *words], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    print(f"as JSON in {RESULTS.relative_to(BENCH.parent)}/")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
