"""
The demo: the service on a Redis server of its own.

    PYTHONPATH=examples:tests python -m agents.demo [--once]
"""

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.request import urlopen

from servers import Redis
from stage import Process, Stage

from .__main__ import log_to_stderr, main
from .agent import Question
from .backend import Backend
from .requests import MainLoopRequest
from .service import Mailboxes, mailboxes

FACTS = {"hamlet": "Shakespeare wrote it"}
SAMPLES = [
    {"id": "s-1", "input": "What is 6 * 7?", "expected": "42"},
    {"id": "s-2", "input": "What about Hamlet?", "expected": "Marlowe"},
    {"id": "s-3", "input": "Sing something", "expected": "la"},
]


class Story:
    """The steps of the demo, with the commands that a person would type."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._facts = stage.place / "facts.json"
        self._samples = stage.place / "samples.jsonl"
        self._health = stage.port()
        self._facts.write_text(json.dumps(FACTS))
        self._samples.write_text("\n".join(map(json.dumps, SAMPLES)))
        self.env = {
            "AGENTS_URL": stage.server(Redis).url,
            "AGENTS_OFFICE": f"sqlite:///{stage.place}/letters.db",
            "AGENTS_FACTS": str(self._facts),
            "AGENTS_TOOLS": "agents.crashing_tool",
            "AGENTS_MAX_DELIVERIES": "2",
            "AGENTS_BACKOFF_STEP": "0.1",
            "AGENTS_VISIBILITY": "1",
            "AGENTS_WAIT": "0.2",
            "AGENTS_HEALTH_PORT": str(self._health),
            "AGENTS_METRICS_PORT": str(stage.port()),
        }
        os.environ.update(self.env)
        self.service = self._started()

    def tell(self) -> None:
        chapter, say = self._stage.chapter, self._stage.say
        with Backend(self.env["AGENTS_URL"], office=self.env["AGENTS_OFFICE"]) as backend:
            boxes = mailboxes(backend)
            chapter("Questions are answered with tools")
            self.command("ask", "What is 6 * 7?", "Convert 5 km to miles")

            chapter("A question that fails twice becomes a dead letter")
            self.command("ask", "What about Godot?")
            self.command("dead")
            self.dlq("groups")

            chapter("The fact is added, and the question is replayed")
            self._facts.write_text(json.dumps({**FACTS, "godot": "He does not come"}))
            say("facts.json now knows about Godot")
            asker = self._asker(backend)
            self.command("replay", "--error", "ResourceNotFound")
            self._stage.until("the replay", lambda: self._states(backend) == "replayed")
            say("its letter is replayed: the agent has processed the copy")
            (late,) = boxes.answers(asker).receive(wait_time_seconds=10)
            assert late.body.output is not None
            say(f"the client gets its answer: {late.body.output.text}")

            chapter("A dataset is scored")
            self.command("evaluate", str(self._samples))

            chapter("A tool with an error in native code ends the process")
            self._crash(boxes)
            self.command("dead")

            chapter("Health checks: every dead letter has raised its alert")
            say(self._asked("/health/ready"))
            self._stage.until("the alerts", self._are_alerted)
            say(self._asked("/health/dlq"))

    def command(self, *words: str) -> None:
        """Run a command of the service, as a person would."""
        shown = [f'"{word}"' if " " in word else Path(word).name for word in words]
        self._stage.command(f"python -m agents {' '.join(shown)}")
        said = StringIO()
        with redirect_stdout(said):
            main(list(words))
        for line in said.getvalue().splitlines():
            self._stage.say(line)

    def dlq(self, *words: str) -> None:
        """Run a command of deadletter on the same office."""
        self._stage.command(f"dlq {' '.join(words)}")
        places = {"DLQ_URL": "AGENTS_URL", "DLQ_OFFICE": "AGENTS_OFFICE"}
        done = subprocess.run(
            [sys.executable, "-m", "deadletter.cli", *words],
            env={
                **os.environ,
                **{ours: self.env[own] for ours, own in places.items()},
                "COLUMNS": "140",
            },
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        for line in done.stdout.splitlines():
            self._stage.say(line.rstrip())

    def _crash(self, boxes: Mailboxes) -> None:
        poison = MainLoopRequest(Question("Appraise the crown"))
        news = boxes.answers("client-of-the-crown")
        boxes.requests.send(poison, reply_to=news)
        self._stage.say("asked: Appraise the crown")
        deaths = 0

        def told() -> str | None:
            nonlocal deaths
            if self.service.code is not None:
                deaths += 1
                self._stage.say(f"the service died of signal {-self.service.code}")
                self.service = self._started()
            replies = news.receive()
            return replies[0].body.error if replies else None

        error = self._stage.until("the reply", told, within=120)
        self._stage.say(f"after {deaths} deaths: {error}")
        self.command("ask", "What is 1 + 1?")

    def _asker(self, backend: Backend) -> str:
        """Return the reply mailbox of the dead request."""

        async def asked() -> str:
            store = await backend.letters()
            page = await store.find(limit=1)
            (letter,) = await store.get([head.id for head in page.heads])
            return str(letter.message.reply_to)

        return backend.call(asked())

    def _states(self, backend: Backend) -> str:
        async def asked() -> str:
            counts = await (await backend.letters()).counts()
            return ", ".join(counts["requests"])

        return backend.call(asked())

    def _are_alerted(self) -> bool:
        return '"depth":0,"threshold":100},"dlqs"' in self._asked("/health/dlq")

    def _asked(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self._health}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def _started(self) -> Process:
        return self._stage.process("agents", env=self.env)


def run(*, once: bool) -> None:
    """Run the demo, and then go on until Ctrl-C unless `once` is set."""
    log_to_stderr()
    with Stage() as stage:
        story = Story(stage)
        story.tell()
        if once:
            return
        stage.chapter("The service runs until Ctrl-C; try this in another terminal")
        for name, value in story.env.items():
            stage.command(f"export {name}={value}")
        stage.command('PYTHONPATH=examples python -m agents ask "What about Hamlet?"')
        try:
            stage.until("Ctrl-C", lambda: story.service.code is not None, within=86_400)
        except KeyboardInterrupt:
            story.service.stop()


if __name__ == "__main__":
    run(once="--once" in sys.argv or not sys.stdout.isatty())
