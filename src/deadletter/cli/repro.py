"""dlq repro: a letter as a test that fails."""

from pathlib import Path
from typing import Final

from deadletter.core.errors import ConfigError, Conflict
from deadletter.office.exports import repro as files_of
from deadletter.wiring.engines import default_settings

from .desk import AtDesk
from .files import new_file
from .options import Flag, Reason, letter_id

_HERE: Final = Path("tests")


async def repro(
    letter: str,
    app: str | None = None,
    /,
    *,
    into: Path = _HERE,
    original: Flag = False,
    reveal: Flag = False,
    force: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Write a test that hands a letter's message to its handler, for pytest.

    It fails the way the message died, until that is mended. The message is a file
    beside it, with what looks like a secret masked.

    Args:
        letter: Its id, or the first 6 or more characters of it.
        app: Where the application is, as module:name. Otherwise DLQ_APP, or app in
            deadletter.toml.
        into: The directory of the tests; it is made if need be.
        original: The message as it died, if it was edited since.
        reveal: Mask nothing. Mind where the file goes.
        force: Overwrite the files if they are there.
        reason: Why; goes into the audit with --reveal.
    """
    app = app or default_settings().app
    if app is None:
        raise ConfigError("say where the application is, as in: dlq repro ID shop:app")
    async with desk.office() as office:
        head, message = await office.letters.message(
            letter_id(letter), desk.by(reason), original=original, shown=reveal
        )
    files = files_of(head, message, app, reveal=reveal)
    _write(into, files, force=force)
    *_, test = files
    if desk.as_json:
        desk.document({"files": [str(into / name) for name in files]})
        return
    desk.tell(f"{' and '.join(str(into / name) for name in files)} written.")
    desk.hint(f"It fails until it is mended: pytest {into / test}")


def _write(into: Path, files: dict[str, str], *, force: bool) -> None:
    there = [name for name in files if (into / name).exists()]
    if there and not force:  # before any of them is written
        raise Conflict(f"{into / there[0]} is there already: --force overwrites it")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{into} cannot be written to: {error.strerror}") from error
    for name, text in files.items():
        with new_file(into / name, force=force) as file:
            file.write(text.encode())
