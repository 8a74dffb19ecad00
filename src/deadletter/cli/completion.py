"""dlq completion: let the shell complete commands and options."""

from typing import Literal

from .desk import AtDesk
from .options import Flag


async def completion(
    shell: Literal["bash", "zsh", "fish"], /, *, install: Flag = False, desk: AtDesk
) -> None:
    """
    Print what makes a shell complete `dlq`, or install it.

    Try it: source <(dlq completion bash)

    Args:
        shell: bash, zsh or fish.
        install: Put it where the shell looks for it.
    """
    from .app import build  # noqa: PLC0415 -- the app knows its commands by name only

    app = build()
    if not install:
        print(app.generate_completion(shell=shell))  # noqa: T201 -- a script, as it is
        return
    path = app.install_completion(shell=shell)
    desk.tell(f"Installed in {path}. Open a new shell to use it.")
