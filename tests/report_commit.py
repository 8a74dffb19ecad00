"""
Writes the commit into every report of pytest, so that no report counts for another commit.

The report gets two properties: `commit`, and `uncommitted` with the names of files that
differ from it. `docs/systems/check.py` reads them.
"""

import pytest
from _pytest.junitxml import xml_key

from revision import Revision, current_revision

_STARTED = pytest.StashKey[Revision]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember the commit; only the process that writes a report has a `xml_key`."""
    if session.config.stash.get(xml_key, None) is not None:
        session.config.stash[_STARTED] = current_revision(session.config.rootpath)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add the properties before the report is written."""
    report = session.config.stash.get(xml_key, None)
    started = session.config.stash.get(_STARTED, None)
    if report is None or started is None:
        return
    ended = current_revision(session.config.rootpath)
    moved = "" if ended.commit == started.commit else f"checked out {ended.commit} meanwhile"
    report.add_global_property("commit", started.commit)
    report.add_global_property("uncommitted", started.uncommitted or ended.uncommitted or moved)
