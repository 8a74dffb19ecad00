"""What a person does with the service, from a shell."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from .agent import Question
from .letters import DeadLetter
from .mailbox import PostMailbox
from .replay import selective_replay
from .requests import EvalRequest, EvalResult, MainLoopRequest, Sample
from .resolvers import CompositeResolver
from .retention import tidy, tidy_office
from .service import Mailboxes
from .sifting import sift

T = TypeVar("T")


def ask(boxes: Mailboxes, questions: Sequence[str], name: str, *, wait: float) -> int:
    """Send questions and print the answers as they come; 1 when one is missing."""
    answers = boxes.answers(name)
    asked: dict[UUID | None, MainLoopRequest[Question]] = {}
    for text in questions:
        request = MainLoopRequest(Question(text))
        asked[request.request_id] = request
        boxes.requests.send(request, reply_to=answers)
    failed = 0
    for result in _replies(answers, wait):
        answered = asked.pop(result.request_id, None)
        if answered is None:  # a second time: its process died after the first
            continue
        output = result.output
        told = f"error: {result.error}" if output is None else output.text
        print(f"{answered.request.text}  {told}", flush=True)
        failed += not result.success
        if not asked:
            break
    for request in asked.values():
        print(f"{request.request.text}  no answer in {wait:g} s", flush=True)
    if not asked:  # otherwise somebody may still answer
        answers.remove()
    return 1 if asked or failed else 0


def evaluate(boxes: Mailboxes, dataset: str, name: str, *, wait: float) -> int:
    """Send every sample of a file and print the scores; 1 unless all passed."""
    scores = boxes.scores(name)
    samples = [
        Sample(str(line["id"]), Question(line["input"]), str(line["expected"]))
        for line in map(json.loads, Path(dataset).read_text("utf-8").splitlines())
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
        print(f"{sample_id}  {_told(result)}")
    passed = sum(bool(r.score and r.score.passed) for r in results.values())
    print(f"{passed} of {len(samples)} passed")
    return 0 if passed == len(samples) else 1


def show_dead(boxes: Mailboxes) -> int:
    """What lies in the dead-letter mailbox of requests; it stays there."""
    dead = 0

    def look_at(letter: DeadLetter[Any]) -> bool:
        nonlocal dead
        dead += 1
        asked = letter.body  # bytes, if it was no request at all
        text = asked.request.text if isinstance(asked, MainLoopRequest) else asked
        error = letter.last_error_type.rpartition(".")[2]
        print(f"{text}  {error}, {letter.delivery_count} deliveries")
        return False

    sift(boxes.dead_requests, look_at)
    print(f"{dead} dead")
    return 0


def throw_away(boxes: Mailboxes) -> int:
    """Let go of what lies there, and of finished letters, longer than 30 days."""
    copies = tidy(boxes.dead_requests, boxes.dead_eval_requests)
    print(f"{copies} dead letters and {tidy_office(boxes.post)} finished ones let go")
    return 0


def replay(boxes: Mailboxes, error: str) -> int:
    """Send back what died of an error, to be answered where it was asked."""
    count = selective_replay(
        boxes.dead_requests,
        boxes.requests,
        predicate=lambda letter: error in letter.last_error_type,
        reply_resolver=CompositeResolver({}, boxes.answers),
    )
    print(f"{count} replayed")
    return 0


def _replies(box: PostMailbox[T, None], wait: float) -> Iterator[T]:
    """Those that come in time."""
    deadline = time.monotonic() + wait
    while (left := deadline - time.monotonic()) > 0:
        for message in box.receive(max_messages=10, wait_time_seconds=left):
            message.acknowledge()
            yield message.body


def _told(result: EvalResult) -> str:
    if result.score is None:
        return f"error: {result.error}"
    word = "passed" if result.score.passed else "failed"
    return f"{word}  {result.score.reason}"
