import io
from unittest.mock import patch

import pytest
from rich.console import Console

from deadletter.cli.desk import Desk
from deadletter.cli.progress import bar


def test_a_person_sees_a_bar() -> None:
    seen = io.StringIO()
    desk = Desk()
    desk.err = Console(file=seen, force_terminal=True, width=80)

    with bar(desk, "sending", 10) as advance:
        advance(4)
        advance(6)

    assert "sending" in seen.getvalue()
    assert "10/10" in seen.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_pipe_sees_none(as_json: bool) -> None:
    seen = io.StringIO()
    desk = Desk(as_json=as_json)
    desk.err = Console(file=seen, force_terminal=as_json)

    with bar(desk, "sending", 10) as advance:
        advance(10)

    assert seen.getvalue() == ""


def test_an_actor_is_who_sits_here_unless_told() -> None:
    with (
        patch("getpass.getuser", return_value="anna"),
        patch("socket.gethostname", return_value="desk-1"),
    ):
        assert Desk().by("r").actor == "anna@desk-1"
        assert Desk(actor="bo").by().actor == "bo"
