"""SQLite: files of earlier versions open, add up and go on."""

import lzma
from pathlib import Path

import pytest

from cli.conftest import Command, dlq
from frozen.checks import check_office

__all__ = ["dlq"]

FILES = sorted((Path(__file__).parents[1] / "frozen").glob("sqlite-*.db.xz"))


@pytest.mark.parametrize("frozen", FILES, ids=lambda path: path.name)
def test_an_office_of_an_earlier_version_goes_on(
    frozen: Path, tmp_path: Path, dlq: Command
) -> None:
    office = tmp_path / "frozen.db"
    office.write_bytes(lzma.decompress(frozen.read_bytes()))
    check_office(dlq, f"sqlite:///{office}")
