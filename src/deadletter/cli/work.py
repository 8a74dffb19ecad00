"""dlq work: run the handlers of an App."""

import sys
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.assembly import load_app
from deadletter.core.errors import ConfigError
from deadletter.runtime.supervise import ChildEnded, supervise

from .desk import AtDesk, Desk

Count = Annotated[int | None, Parameter(validator=Number(gte=1))]
Port = Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))]


def work(
    app: str | None = None,
    /,
    *,
    processes: Annotated[Count, Parameter(name=["--processes", "-p"])] = None,
    health_port: Port = None,
    desk: AtDesk,
) -> int:
    """
    Run the handlers of an App until told to stop.

    The first interrupt lets running handlers finish; the second does not wait.

    Args:
        app: Where the App is, as module:name; otherwise `app` in deadletter.toml.
        processes: How many processes to run, under a supervisor that replaces
            those that die.
        health_port: Answer /health/live and /health/ready on this port.
    """
    settings = desk.settings
    name = app or settings.app
    if name is None:
        raise ConfigError("say which App to run, as in `dlq work shop:app`")
    count = processes or settings.work.processes
    port = health_port or settings.work.health_port
    if count == 1:
        return load_app(name).run(health_port=port)
    load_app(name)  # what cannot be loaded is said once, not by every child
    words = ["work", name, "--processes", "1"]
    words += ["--health-port", str(port)] if port else []
    return supervise(
        [sys.executable, "-m", __package__, *words],
        processes=count,
        clock=desk.clock,
        on_end=lambda ended: _say(desk, ended),
    )


def _say(desk: Desk, ended: ChildEnded) -> None:
    how = f"was killed by signal {-ended.code}" if ended.code < 0 else "ended"
    code = f" with code {ended.code}" if ended.code > 0 else ""
    again = f"; another starts in {ended.delay:g} s" if ended.delay is not None else ""
    desk.err.print(f"worker {ended.pid} {how}{code}{again}")
