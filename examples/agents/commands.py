"""The commands of the service, for a person at a shell."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from deadletter.core.letter import DeadLetter as Kept
from deadletter.office.letters import Letters

from .agent import Question
from .dead_letter import DeadLetter, to_dead_letter
from .mailbox import BackendMailbox
from .replay import ReplayOutcome, send_back
from .requests import EvalRequest, EvalResult, MainLoopRequest, Sample
from .resolvers import CompositeResolver
from .retention import delete_finished, discard_expired
from .service import Mailboxes

T = TypeVar("T")


def ask(boxes: Mailboxes, questions: Sequence[str], name: str, *, wait: float) -> int:
    """Send questions and print the answers as they come; return 1 if one is missing."""
    answers = boxes.answers(name)
    asked: dict[UUID | None, MainLoopRequest[Question]] = {}
    for text in questions:
        request = MainLoopRequest(Question(text))
        asked[request.request_id] = request
        boxes.requests.send(request, reply_to=answers)
    failed = 0
    for result in _replies(answers, wait):
        answered = asked.pop(result.request_id, None)
        if answered is None:  # a duplicate, sent by a process that died after the first
            continue
        output = result.output
        shown = f"error: {result.error}" if output is None else output.text
        print(f"{answered.request.text}  {shown}", flush=True)
        failed += not result.success
        if not asked:
            break
    for request in asked.values():
        print(f"{request.request.text}  no answer in {wait:g} s", flush=True)
    if not asked:  # otherwise an answer may still come
        answers.remove()
    return 1 if asked or failed else 0


def evaluate(boxes: Mailboxes, dataset: str, name: str, *, wait: float) -> int:
    """Send every sample of a file and print the scores; return 1 unless all passed."""
    scores = boxes.scores(name)
    samples = [
        Sample(str(entry["id"]), Question(entry["input"]), str(entry["expected"]))
        for entry in map(json.loads, Path(dataset).read_text("utf-8").splitlines())
    ]
    for sample in samples:
        boxes.eval_requests.send(EvalRequest(sample), reply_to=scores)
    results: dict[str, EvalResult] = {}
    for result in _replies(scores, wait):
        results[result.sample_id] = result
        if len(results) == len(samples):
            scores.remove()
            break
    for sample_id, result in sorted(results.items()):
        print(f"{sample_id}  {_shown(result)}")
    passed = sum(bool(r.score and r.score.passed) for r in results.values())
    print(f"{passed} of {len(samples)} passed")
    return 0 if passed == len(samples) else 1


def list_dead(boxes: Mailboxes) -> int:
    """Print the dead requests that are still open in the office."""
    letters = _open_letters(boxes)
    for letter in letters:
        asked = letter.body  # bytes if the body is not a request
        text = asked.request.text if isinstance(asked, MainLoopRequest) else asked
        error = letter.last_error_type.rpartition(".")[2]
        print(f"{text}  {error}, {letter.delivery_count} deliveries")
    print(f"{len(letters)} dead")
    return 0


def apply_retention(boxes: Mailboxes) -> int:
    """Discard and delete everything whose retention period is over."""
    discarded = discard_expired(boxes.dead_requests, boxes.dead_eval_requests)
    print(f"{discarded} dead letters discarded, {delete_finished(boxes.backend)} deleted")
    return 0


def replay(boxes: Mailboxes, error: str) -> int:
    """Replay the dead requests with this error type; the original senders get the replies."""
    resolver = CompositeResolver({}, boxes.answers)
    outcomes = [
        send_back(letter, source=boxes.requests, reply_resolver=resolver)
        for letter in _open_letters(boxes)
        if error in letter.last_error_type
    ]
    print(f"{outcomes.count(ReplayOutcome.SENT)} replayed")
    return 0


def _open_letters(boxes: Mailboxes) -> list[DeadLetter[Any]]:
    """Return the requests that the office keeps as dead letters, oldest first."""
    query = f"source:{boxes.requests.name} is:pending"

    async def asked() -> list[Kept]:
        store = await boxes.backend.letters()
        ids = await Letters(store, boxes.backend.clock).freeze(query)
        return list(await store.get(ids))

    kept = sorted(boxes.backend.call(asked()), key=lambda one: one.head.dead_at)
    return [to_dead_letter(one, boxes.requests.decode) for one in kept]


def _replies(box: BackendMailbox[T, None], wait: float) -> Iterator[T]:
    """Yield the replies that come in time."""
    deadline = time.monotonic() + wait
    while (left := deadline - time.monotonic()) > 0:
        for message in box.receive(max_messages=10, wait_time_seconds=left):
            message.acknowledge()
            yield message.body


def _shown(result: EvalResult) -> str:
    if result.score is None:
        return f"error: {result.error}"
    word = "passed" if result.score.passed else "failed"
    return f"{word}  {result.score.reason}"
