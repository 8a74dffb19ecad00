"""Names that nobody mistakes for another."""
# ruff: noqa: RUF001 -- looking alike is the point

import pytest

from deadletter.core.access import name_problem, skeleton


@pytest.mark.parametrize(
    "name", ["anna", "Anna Müller", "ci-10", "mail-team/ci", "Ольга", "山田さん", "o'n"]
)
def test_ordinary_names_are_fine(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "printable"),
        ("a" * 201, "printable"),
        ("anna\u200b", "printable"),
        ("an\u202ena", "printable"),
        ("an\u00adna", "printable"),
        (" anna", "space"),
        ("anna  b", "space"),
        ("ａｎｎａ", "looks like"),
        ("\ufb01n", "looks like"),
        ("аnna", "Cyrillic and Latin"),
        ("αnna", "Greek and Latin"),
        ("system", "office"),
        ("System", "office"),
        ("sweep", "office"),
        ("swееp", "mixes"),
        ("loca1", "office"),
        ("dlq serve", "office"),
        ("dlq", "office"),
        ("office/x", "office"),
        ("wörker", "office"),
    ],
)
def test_names_that_could_mislead_are_refused(name: str, why: str) -> None:
    assert why in (name_problem(name) or "")


def test_names_that_look_alike_have_one_skeleton() -> None:
    for one, other in (("anna", "Anna"), ("ops", "орѕ"), ("al", "a1"), ("bo", "b0")):
        assert skeleton(one) == skeleton(other)
    assert skeleton("anna") != skeleton("hanna")
