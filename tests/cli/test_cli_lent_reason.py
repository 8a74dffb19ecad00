"""Reasons for changes of lease queues are recorded in the audit."""

from cli.conftest import RemoteCommand
from client.serving import Served


def test_a_reason_is_kept_with_whatever_is_done_to_queues(
    remote: RemoteCommand, server: Served
) -> None:
    lent = ("queues", "lent")
    for words in (
        ("create", "jobs", "--reason", "für März"),
        ("update", "jobs", "--lease", "5m", "--reason", "they are slow"),
        ("clear", "jobs", "--yes", "--reason", "load test"),
        ("delete", "jobs", "--yes", "--reason", "renamed"),
    ):
        assert remote(*lent, *words).code == 0

    entries = server.run(server.context.store.audit(target="jobs"))
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("queues.create", "für März"),
        ("queues.update", "they are slow"),
        ("queue.clear", "load test"),
        ("queues.delete", "renamed"),
    ]
