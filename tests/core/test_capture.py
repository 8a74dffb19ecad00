import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.failure import Failure, Trouble
from deadletter.core.failure.capture import STACK_LIMIT, TEXT_LIMIT, capture
from deadletter.core.failure.classify import ErrorClassifier
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.message import Delivery, Message
from deadletter.runtime.handlers import typed
from hostile_errors import hostile_errors

HOSTILE = hostile_errors()


def caught(raises: Callable[[], object]) -> BaseException:
    try:
        raises()
    except BaseException as error:  # noqa: BLE001 -- whatever it is
        return error
    raise AssertionError("nothing was raised")


def charge() -> None:
    raise ValueError("order 7 cannot be charged")


def test_there_are_sixty_hostile_errors_or_more() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_error_becomes_a_harmless_failure(name: str) -> None:
    error = HOSTILE[name]()
    started = time.process_time()

    failure = capture(error, DEFAULT)

    assert time.process_time() - started < 2.0
    assert isinstance(failure.trouble, Trouble)
    assert failure.code not in {"", "UNCLASSIFIABLE"}
    assert failure.error_type, "it was not described at all"
    assert len(failure.text) <= TEXT_LIMIT
    assert len(failure.stack.encode()) <= STACK_LIMIT
    assert len(failure.error_type) + len(failure.frame) <= 1_000
    shown = failure.text + failure.stack + failure.frame + failure.error_type
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", shown)
    assert "hunter2" not in shown
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_error_raised_for_real_is_harmless_as_well(name: str) -> None:
    def raises() -> None:
        error = HOSTILE[name]()
        raise error

    failure = capture(caught(raises), DEFAULT)

    assert failure.error_type
    assert failure.frame
    assert 0 < len(failure.stack.encode()) <= STACK_LIMIT


def test_raised_errors_are_described() -> None:
    failure = capture(caught(charge), DEFAULT)

    assert failure.error_type == "ValueError"
    assert failure.text == "order 7 cannot be charged"
    assert failure.frame.startswith(f"{__name__}:charge#")
    assert (failure.trouble, failure.code) == (Trouble.UNKNOWN, "VALUE_ERROR")


def test_a_type_is_named_with_its_module() -> None:
    assert capture(msgspec.ValidationError("x"), DEFAULT).error_type == ("msgspec.ValidationError")


def test_the_verdict_is_passed_on() -> None:
    error = TimeoutError("slow")
    vars(error)["retry_after"] = 5

    failure = capture(error, DEFAULT)

    assert (failure.trouble, failure.code) == (Trouble.TRANSIENT, "TIMEOUT")
    assert (failure.rule, failure.retry_after) == ("type-timeout", 5.0)


def test_a_broken_classifier_rule_does_not_keep_an_error_from_being_described() -> None:
    class Broken(ErrorClassifier, frozen=True, dict=True):
        def _judge(self, *args: object) -> None:  # type: ignore[override]
            raise RuntimeError("broken")

    failure = capture(ValueError("x"), Broken())

    assert (failure.trouble, failure.code) == (Trouble.UNKNOWN, "UNCLASSIFIABLE")
    assert failure.text == "x"


# --- text


def test_a_long_text_is_cut_with_a_mark() -> None:
    text = capture(ValueError("x" * 5_000), DEFAULT).text

    assert text == "x" * (TEXT_LIMIT - 1) + "…"


def test_a_text_of_just_the_right_length_is_kept() -> None:
    assert capture(ValueError("x" * TEXT_LIMIT), DEFAULT).text == "x" * TEXT_LIMIT


def test_tabs_newlines_and_letters_of_the_world_stay() -> None:
    assert capture(ValueError("a\tb\n漢字 é 😀"), DEFAULT).text == "a\tb\n漢字 é 😀"


def test_a_text_with_methods_of_its_own_is_read_without_them() -> None:
    assert capture(HOSTILE["str shouts"](), DEFAULT).text.startswith("xxx")


def test_controls_are_spelled_out() -> None:
    assert capture(ValueError("a\x00\x1b\u202eb\ud800"), DEFAULT).text == (
        r"a\x00\x1b\u202eb\ud800"
    )


def test_a_secret_across_the_limit_is_not_shown_in_half() -> None:
    token = "ghp_" + "a1B2" * 9
    text = "x" * (TEXT_LIMIT - 15) + " " + token

    assert "ghp_" not in capture(ValueError(text), DEFAULT).text


@given(st.text(max_size=300))
def test_every_text_can_be_stored(text: str) -> None:
    failure = capture(ValueError(text), DEFAULT)

    assert "\x00" not in failure.text
    failure.text.encode()


# --- stacks


def test_a_stack_names_files_lines_and_functions_outermost_first() -> None:
    def outer() -> None:
        charge()

    lines = capture(caught(outer), DEFAULT).stack.split("\n")

    place = charge.__code__.co_firstlineno + 1
    assert lines[-1] == f'  File "{__file__}", line {place}, in charge'
    assert lines[-2].endswith(f", in {outer.__qualname__}")


def descend(depth: int) -> None:
    if depth == 0:
        raise ValueError("bottom")
    descend(depth - 1)


def test_a_deep_stack_keeps_its_ends() -> None:
    lines = capture(caught(lambda: descend(500)), DEFAULT).stack.split("\n")

    assert len(lines) == 21
    assert lines[0].endswith(", in caught")
    assert lines[5] == "  ... 483 frames left out ..."
    place = descend.__code__.co_firstlineno
    assert lines[-1] == f'  File "{__file__}", line {place + 2}, in descend'
    assert lines[-2] == f'  File "{__file__}", line {place + 3}, in descend'


def test_causes_are_told_with_their_stacks() -> None:
    def wrap() -> None:
        try:
            charge()
        except ValueError as error:
            raise RuntimeError("wrapped") from error

    def fumble() -> None:
        try:
            wrap()
        except RuntimeError:
            {}["missing"]

    stack = capture(caught(fumble), DEFAULT).stack

    assert "\nwhile handling RuntimeError: wrapped\n" in stack
    assert "\ncaused by ValueError: order 7 cannot be charged\n" in stack
    assert stack.index("while handling") < stack.index("caused by")
    assert stack.endswith(", in charge")


def test_a_ring_of_causes_is_told_once() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert capture(first, DEFAULT).stack == "caused by ValueError: second"


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_a_stack_of_many_causes_is_cut_at_its_limit(letter: str) -> None:
    error = caught(charge)
    for _ in range(7):
        above = caught(lambda: descend(30))
        above.__cause__ = error
        above.args = (letter * 1_000,)
        error = above

    stack = capture(error, DEFAULT).stack

    assert STACK_LIMIT - 8 <= len(stack.encode()) <= STACK_LIMIT
    assert stack.endswith("…")
    assert stack.startswith(f'  File "{__file__}"')


def test_members_of_a_group_are_told() -> None:
    group = ExceptionGroup("two", [caught(charge), KeyError("k")])  # type: ignore[list-item]

    stack = capture(group, DEFAULT).stack

    assert "holding ValueError: order 7 cannot be charged\n" in stack
    assert stack.endswith("holding KeyError: 'k'")


def test_secrets_of_causes_are_redacted() -> None:
    error = ValueError("outer")
    error.__cause__ = ValueError("postgres://shop:hunter2@db/shop\nDETAIL: x")

    stack = capture(error, DEFAULT).stack

    assert stack == (r"caused by ValueError: postgres://shop:[redacted]@db/shop\nDETAIL: x")


def test_an_error_that_was_never_raised_has_no_stack() -> None:
    failure = capture(ValueError("x"), DEFAULT)

    assert (failure.stack, failure.frame) == ("", "")


def test_equal_functions_of_two_files_are_told_apart() -> None:
    def from_file(name: str) -> BaseException:
        names: dict[str, object] = {"__name__": name}
        source = "def run():\n    raise ValueError('x')\n"
        exec(compile(source, f"/app/{name}.py", "exec"), names)
        return caught(names["run"])  # type: ignore[arg-type]

    one = capture(from_file("one"), DEFAULT)
    two = capture(from_file("two"), DEFAULT)

    assert [one.frame[:8], two.frame[:8]] == ["one:run#", "two:run#"]
    assert "/app/two.py" in two.stack


# --- the top application frame


def called_from(filename: str) -> BaseException:
    names: dict[str, object] = {"__name__": "lib", "charge": charge}
    source = "def call(f):\n    f()\ndef fail():\n    raise ValueError('x')\n"
    exec(compile(source, filename, "exec"), names)
    return caught(lambda: names["call"](names["fail"]))  # type: ignore[operator]


@pytest.mark.parametrize(
    "filename",
    [
        "/app/.venv/lib/python3.11/site-packages/httpx/_client.py",
        "/usr/lib/python3/dist-packages/requests/api.py",
        r"C:\app\venv\Lib\site-packages\httpx\_client.py",
        re.__file__,
        "<frozen importlib._bootstrap>",
        sys.modules["deadletter.core.failure.capture"].__file__,
    ],
)
def test_libraries_are_not_the_application(filename: str) -> None:
    frame = capture(called_from(filename), DEFAULT).frame

    assert frame.startswith(f"{__name__}:called_from")


@pytest.mark.parametrize("filename", ["/app/shop/bank.py", "<string>"])
def test_the_innermost_frame_of_the_application_is_the_top(filename: str) -> None:
    assert capture(called_from(filename), DEFAULT).frame.startswith("lib:fail#")


def raised_by(source: str) -> str:
    names: dict[str, object] = {"__name__": "lib"}
    exec(compile(source, "/app/lib.py", "exec"), names)
    return capture(caught(names["fail"]), DEFAULT).frame  # type: ignore[arg-type]


def test_a_line_that_moves_keeps_its_hash() -> None:
    here = raised_by("def fail():\n    raise ValueError('x')\n")
    there = raised_by("import re\n\n\ndef fail():\n    a = 1\n    raise  ValueError('x') #\n")

    assert here == there


def test_two_lines_of_one_function_are_told_apart() -> None:
    frames = {
        raised_by(f"def fail():\n    given = {{}}\n    {line}\n")
        for line in ("given['a']", "given['b']", "given['a'] + 1", "int('x')")
    }

    assert len(frames) == 4


def test_without_application_frames_the_innermost_is_the_top() -> None:
    error = called_from("/x/site-packages/lib.py")
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != "call":
        trace = trace.tb_next

    failure = capture(error.with_traceback(trace), DEFAULT)

    assert failure.frame == "lib:fail"


def test_frames_of_this_package_are_never_the_top() -> None:
    def decode() -> None:
        typed(lambda_of_a_number)(Delivery(message=NOT_A_NUMBER, mailbox="orders"))

    error = caught(decode)
    trace = error.__traceback__
    while trace is not None and "/deadletter/" not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    failure = capture(error.with_traceback(trace), DEFAULT)

    assert trace is not None
    assert failure.error_type.endswith("Malformed")
    assert failure.frame == ""
    assert "_fit" in failure.stack  # people still see where it was raised


def lambda_of_a_number(number: int) -> None: ...


NOT_A_NUMBER = Message(id="m", body=b"{}", sent_at=datetime(2026, 1, 1, tzinfo=UTC))
