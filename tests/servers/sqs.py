"""SQS: the emulator ministack. It is not AWS."""

import urllib.error
import urllib.request
from pathlib import Path

from .common import HOST, Server, program


class Sqs(Server):
    """
    An emulator of its own, which checks no keys.

    Queues and messages outlive `stop`, not `kill`: it saves them when it is told to
    end.
    """

    name = "sqs"
    access_key = "test"
    secret_key = "test"
    region = "eu-west-1"

    @classmethod
    def find(cls) -> dict[str, Path]:
        return {"server": program("ministack", "bin/ministack")}

    def make_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return [str(self.programs["server"])]

    def environment(self) -> dict[str, str]:
        return {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "sqs",
            "HOME": str(self.directory),
            "PERSIST_STATE": "1",
            "STATE_DIR": str(self.directory / "state"),
        }

    def is_ready(self) -> bool:
        try:
            asked = f"{self.url}/?Action=ListQueues&Version=2012-11-05"
            with urllib.request.urlopen(asked, timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as answer:
            return answer.code < 500
