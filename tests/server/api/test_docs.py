"""The commands on the page about the API are executed with curl."""

import asyncio
import os
import shutil
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from deadletter.core.access import Role
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from docs.reading import ROOT, blocks, commands
from office.making import BY, make_letter, make_letters
from queue_server.wire.wire_rig import running
from server.conftest import token

PAGE = ROOT / "docs" / "http-api.md"


SHELL = """
shopt -s expand_aliases
set -euo pipefail
cd "$PLACE"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_every_command_on_the_page_is_answered(
    guarded: ServerContext, tmp_path: Path
) -> None:
    now = guarded.clock.now()
    letters = make_letters(3, now=now)
    fixed = make_letter(9, error_type="builtins.KeyError", now=now)
    await guarded.store.keep([*letters, fixed])
    await guarded.office.letters.review([fixed.id], BY)
    chosen = [letter.id for letter in letters]
    # On the page one reads the plan's id in the answer before.
    plan = await guarded.office.replays.sender.begin(chosen, BY, query="*", rate=0.1, hold=True)
    async with running(build(guarded)) as url:
        environ = os.environ | {
            "PLACE": str(tmp_path),
            "TOKEN": await token(guarded, Role.ADMIN),
            "ID": letters[0].id,
            "GROUP": letters[0].head.fingerprint,
            "PLAN": plan.id,
        }
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", SHELL + "\n".join(_commands(url))),
            env=environ,
            stdout=PIPE,
            stderr=STDOUT,
        )
        said, _ = await shell.communicate()

    assert shell.returncode == 0, said.decode()[-2000:]
    assert (tmp_path / "letters.jsonl").read_text().count("\n") > 3
    assert (tmp_path / "body.bin").read_bytes()
    assert len(await guarded.store.audit(target=letters[0].id)) > 3


def _commands(url: str) -> list[str]:
    found = [
        command.text
        for block in blocks(PAGE.read_text())
        if block.language == "console"
        for command in commands(block.text)
    ]
    assert sum(command.startswith("api ") for command in found) > 25
    return [
        f"export DLQ={url}" if command.startswith("export DLQ=") else command
        for command in found
        if not command.startswith("dlq serve")
    ]
