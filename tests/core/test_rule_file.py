import inspect

import pytest

from deadletter.core.errors import ConfigError
from deadletter.core.failure import Trouble
from deadletter.core.failure.classify import ErrorClassifier, rules_from_toml


class Odd(Exception):
    def __init__(self, text: str = "", **carried: object) -> None:
        super().__init__(text)
        vars(self).update(carried)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        rules_from_toml(text)
    return str(caught.value)


def test_the_documented_example_works() -> None:
    documented = inspect.getdoc(rules_from_toml) or ""
    example = documented.partition("\n\n")[2].partition("\nA rule needs")[0]

    rules = rules_from_toml(example)

    assert [rule.id for rule in rules] == ["bank-is-closed", "card-declined"]
    verdict = ErrorClassifier(rules).classify(Odd("Card DECLINED by issuer"))
    assert verdict.trouble is Trouble.PERMANENT


def test_every_matcher_can_be_written_down() -> None:
    rules = rules_from_toml(
        """
        [[rules]]
        id = "everything"
        trouble = "loop"
        code = "ROUND"
        names = ["Odd"]
        name_parts = ["dd"]
        error_codes = ["E1"]
        statuses = [429, "500-503"]
        grpc = ["ABORTED"]
        texts = ["again"]
        pattern = 'a+gain'
        """
    )
    classifier = ErrorClassifier(rules)
    error = Odd("again", code="E1", status_code=502, grpc_status_code="ABORTED")

    assert classifier.classify(error).code == "ROUND"
    for change in (
        {"code": "E2"},
        {"status_code": 504},
        {"grpc_status_code": "INTERNAL"},
        {"args": ("never",)},
    ):
        other = Odd("again", **{**vars(error), **change})
        other.args = change.get("args", ("again",))
        assert classifier.classify(other).rule == ""


def test_no_rules_are_fine() -> None:
    assert rules_from_toml("") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules = [", ["not valid TOML"]),
        ("[[rule]]\nid = 'x'", ["[[rules]]", "rule"]),
        ("rules = 5", ["[[rules]]"]),
        ("rules = [5]", ["[[rules]]"]),
        (
            "[[rules]]\nid = 'a'\ntrouble = 'transient'\nstatus = [5]",
            ["'a'", "Remove or rename status", "statuses"],
        ),
        ("[[rules]]\nid = 'a'\ntrouble = 'bad'\ntexts = ['x']", ["'a'", "transient, permanent"]),
        ("[[rules]]\nid = 'a'\ntexts = ['x']", ["'a'", "Set trouble to one of"]),
        ("[[rules]]\ntrouble = 'transient'\ntexts = ['x']", ["number 1", "id"]),
        (
            "[[rules]]\nid = 'a'\ntrouble = 'transient'\nstatuses = ['5xx']",
            ["'a'", "'5xx'", '"500-599"'],
        ),
        (
            "[[rules]]\nid = 'a'\ntrouble = 'transient'\nstatuses = ['599-500']",
            ["'a'", '"500-599"'],
        ),
        (
            "[[rules]]\nid = 'a'\ntrouble = 'transient'\nstatuses = [42]",
            ["'a'", "42 is not an HTTP status"],
        ),
        ("[[rules]]\nid = 'a'\ntrouble = 'transient'\ngrpc = ['BUSY']", ["'a'", "BUSY"]),
        (
            "[[rules]]\nid = 'a'\ntrouble = 'transient'\npattern = '('",
            ["'a'", "not a valid regular expression", "texts"],
        ),
        ("[[rules]]\nid = 'a'\ntrouble = 'transient'\ntexts = 'x'", ["'a'", "array", "example"]),
        ("[[rules]]\nid = 'a'\ntrouble = 'transient'", ["'a'", "matches nothing"]),
    ],
)
def test_a_bad_file_is_refused_with_the_rule_and_what_to_change(text: str, says: list[str]) -> None:
    refused = refusal(text)

    for part in says:
        assert part in refused


def test_two_rules_cannot_share_an_id() -> None:
    rule = "[[rules]]\nid = 'a'\ntrouble = 'transient'\ntexts = ['x']\n"

    assert "'a'" in refusal(rule + rule)
