"""dlq edit: change the message of a letter."""

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from msgspec import UNSET
from msgspec.structs import replace
from rich.text import Text

from deadletter.core.errors import ConfigError
from deadletter.core.letter import Changes, LetterHead, check_revision
from deadletter.core.message import Headers
from deadletter.core.text import clean
from deadletter.office.diff import Difference, Sign, differences

from .desk import AtDesk, Desk
from .options import Flag, Reason, Several, Yes, header_of, letter_id, read_body
from .streams import left_to_child
from .ui import ask_to_confirm, short


class Draft:
    """A private temporary file with the body of a message, to be edited."""

    def __init__(self, command: list[str], body: bytes, name: str) -> None:
        if _is_binary(body):
            raise ConfigError(
                "the body is not text, and an editor would damage it: give a new body"
                " with --body FILE"
            )
        self._command = command
        self._before = body
        suffix = ".json" if body.lstrip()[:1] in (b"{", b"[") else ".txt"
        self.file = Path(tempfile.mkdtemp(prefix="dlq-edit-")) / f"{name}{suffix}"

    async def edited(self) -> bytes:
        """Return the text after editing."""
        self.file.write_bytes(self._before)
        with left_to_child():
            code = await self._run()
        if code != 0:
            raise ConfigError(
                f"the editor {self._command[0]} ended with exit code {code}: nothing was changed"
            )
        return self._after()

    @property
    def is_changed(self) -> bool:
        """Return whether the text was changed."""
        return self.file.exists() and self._after() != self._before

    def forget(self) -> None:
        """Delete the file, and files that the editor left in its directory."""
        shutil.rmtree(self.file.parent, ignore_errors=True)

    async def _run(self) -> int:
        try:
            process = await asyncio.create_subprocess_exec(*self._command, str(self.file))
        except OSError as error:
            raise ConfigError(
                f"could not start the editor {self._command[0]} ({error.strerror}): set"
                " EDITOR to another one, or give the body with --body FILE"
            ) from error
        return await process.wait()

    def _after(self) -> bytes:
        try:
            after = self.file.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the edited file: {error.strerror}") from error
        if not self._before.endswith(b"\n") and after.endswith(b"\n"):
            return after[:-1]  # editors add a line break to the last line
        return after


def editor() -> list[str]:
    """Return the command of the editor in VISUAL or EDITOR."""
    given = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        words = shlex.split(given or "")
    except ValueError as error:
        raise ConfigError(f"EDITOR is not a valid command ({error}): {given!a}") from error
    if not words:
        raise ConfigError("no editor is set: set EDITOR, or give the body with --body FILE")
    return words


def _is_binary(body: bytes) -> bool:
    try:
        return "\x00" in body.decode()
    except UnicodeDecodeError:
        return True


_STYLES: Final = {Sign.SAME: "dim", Sign.GONE: "red", Sign.NEW: "green"}


async def edit(
    letter: str,
    /,
    *,
    body: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    set_: Annotated[Several, Parameter(name="--set")] = (),
    unset: Several = (),
    content_type: str | None = None,
    key: str | None = None,
    reveal: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> None:
    """
    Change the message of a letter, after showing the difference.

    Without options, the body is opened in $VISUAL or $EDITOR. The original message is kept
    permanently; a replay sends the edited message under the original id. The audit records
    who edited and looked, but no content.

    Args:
        letter: The id of the letter, or at least the first 6 characters of it.
        body: A file with the new body; - means standard input.
        set_: A header as name=value, which replaces all headers of that name; can be
            repeated.
        unset: The name of a header to remove; can be repeated.
        content_type: The new content type.
        key: The new ordering key.
        reveal: Show masked secrets in the difference.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    by, letter = desk.by(reason), letter_id(letter)
    changes = Changes(
        body=UNSET if body is None else read_body(body),
        content_type=UNSET if content_type is None else content_type,
        key=UNSET if key is None else key,
    )
    new = [header_of(text) for text in set_]
    in_editor = changes == Changes() and not new and not unset
    command = editor() if in_editor else []
    async with desk.office() as office:
        head = await office.letters.head(letter)
        check_revision(head, head.revision)
        head, before = await office.letters.message(head.id, by, shown=in_editor or reveal)
        draft = Draft(command, before.body, short(head.id)) if in_editor else None
        with _kept_on_error(desk, draft):
            if draft is not None:
                changes = Changes(body=await draft.edited())
            elif new or unset:
                headers = _headers(before.headers, new, unset)
                changes = replace(changes, headers=headers)
            found = differences(before, changes.made_to(before), reveal=reveal)
            if found:
                _ask(desk, head, found, yes=yes)
                head = await office.letters.edit(head.id, changes, by, revision=head.revision)
    _report(desk, head, found)


@contextmanager
def _kept_on_error(desk: Desk, draft: Draft | None) -> Iterator[None]:
    """Delete the draft at the end; keep it and print its path if the edit failed."""
    if draft is None:
        yield
        return
    try:
        yield
    except BaseException:
        if draft.is_changed:
            desk.warn(f"Your changes are in {draft.file}")
        else:
            draft.forget()
        raise
    draft.forget()


def _ask(desk: Desk, head: LetterHead, found: Sequence[Difference], *, yes: bool) -> None:
    if not desk.as_json:
        for part in difference_lines(found):
            desk.show(part)
    ask_to_confirm(desk, f"edit letter {short(head.id)}", yes=yes)


def _report(desk: Desk, head: LetterHead, found: Sequence[Difference]) -> None:
    if desk.as_json:
        desk.document({"id": head.id, "revision": head.revision, "differences": found})
    elif not found:
        desk.tell("No difference: the letter was not changed.")
    else:
        desk.tell(f"Letter {short(head.id)} edited.")
        dlq, name = desk.dlq, short(head.id)
        desk.hint(f"Next: {dlq} replay {name} · {dlq} show {name}")


def difference_lines(found: Sequence[Difference], *, most: int | None = None) -> Iterator[Text]:
    """Yield the difference line by line, at most `most` lines per part."""
    for difference in found:
        yield Text(difference.part, style="bold")
        for line in difference.lines[:most]:
            yield Text(f"{line.sign} {clean(line.text)}", _STYLES[line.sign])
        if difference.cut or (most is not None and len(difference.lines) > most):
            yield Text("… and more", style="dim")


def _headers(headers: Headers, new: Sequence[tuple[str, bytes]], removed: Sequence[str]) -> Headers:
    names = {name for name, _ in new} | set(removed)
    missing = set(removed) - {name for name, _ in headers}
    if missing:
        raise ConfigError(f"the message has no header {min(missing)[:40]!r} to remove")
    return (*(pair for pair in headers if pair[0] not in names), *new)
