"""Offices that cannot store tokens: the tokens are in a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from server.serve.conftest import Served
from servers import Server

# In a parallel run, tests of one server go to one process: it starts once.
pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("mongodb_server")]


def test_tokens_of_a_mongodb_office_are_in_a_file(
    serve: Callable[..., Served], mongodb_server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "access.db"
    environ = {"DLQ_URL": mongodb_server.url, "DLQ_ACCESS_STORE": f"sqlite:///{file}"}
    first = serve(**environ)
    token = first.token
    first.signal()
    assert first.ended() == 0

    again = serve(**environ)
    with again.client(token) as client:
        letters = client.get("/api/v1/letters")
        lease = client.post("/v1/queue.stats", json={"queue_name": "orders"})

    assert letters.status_code == 200
    assert lease.status_code == 404  # it lends nothing
    assert file.exists()
    assert again.tokens == []
