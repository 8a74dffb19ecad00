"""MongoDB as a replica set of one: the one on the PATH, or a wheel that has mongod."""

from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from .common import HOST, PASSWORD, Server, program


class MongoDB(Server):
    """
    A replica set of its own, so that there are transactions; user and password.

    Majority writes wait for the journal. Expired documents go within a second.
    """

    name = "mongodb"

    @classmethod
    def find(cls) -> dict[str, Path]:
        wheel = "lib/python3*/site-packages/fiftyone/db/bin/mongod"
        return {"server": program("mongod", wheel)}

    def make_url(self) -> str:
        return f"mongodb://dlq:{PASSWORD}@{HOST}:{self.port}/?replicaSet=rs0"

    def prepare(self) -> None:
        # Members of a set know each other by a key; without one there is no login.
        key = self.directory / "key"
        key.write_text(PASSWORD)
        key.chmod(0o400)
        (self.directory / "data").mkdir()

    def command(self) -> list[str]:
        return [
            *(str(self.programs["server"]), "--dbpath", str(self.directory / "data")),
            *("--port", str(self.port), "--bind_ip", HOST, "--nounixsocket"),
            *("--replSet", "rs0", "--keyFile", str(self.directory / "key")),
            *("--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25"),
            *("--setParameter", "ttlMonitorSleepSecs=1"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        ]

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return self._is_primary(client)
        except PyMongoError:
            return False

    def client(self, **options: Any) -> MongoClient[dict[str, object]]:
        """One that has not said who it is."""
        return MongoClient(
            HOST, self.port, directConnection=True, serverSelectionTimeoutMS=500, **options
        )

    def _is_primary(self, client: MongoClient[dict[str, object]]) -> bool:
        hello = client.admin.command("hello")
        if hello.get("isreplicaset"):  # a member that belongs to no set yet
            member = {"_id": 0, "host": f"{HOST}:{self.port}"}
            one = {"_id": "rs0", "members": [member]}
            client.admin.command("replSetInitiate", one)
            return False
        if not hello["isWritablePrimary"]:
            return False
        self._create_user(client)
        return True

    def _create_user(self, client: MongoClient[dict[str, object]]) -> None:
        if (self.directory / "user").exists():
            return
        # As long as there is no user, whoever comes from this machine may make one.
        try:
            client.admin.command("createUser", "dlq", pwd=PASSWORD, roles=["root"])
        except OperationFailure as error:
            if error.code != 51003:  # it is there
                raise
        (self.directory / "user").touch()
