"""A client in Go, generated from the .proto, against a real server on each storage."""

import os
import shutil
import subprocess
from pathlib import Path

import grpc_tools
import pytest
from grpc_tools import protoc

import deadletter
from servers import golang
from systems.leasequeue.rig import Server

HERE = Path(__file__).parent / "go_client"
PROTO = Path(deadletter.__file__).parent / "queue_server" / "querator.proto"
TESTS = ("TestItemsLiveAndDie", "TestErrorsHaveTheirCodes", "TestOptionsAreRemovedByAnUpdate")


@pytest.fixture(scope="session")
def go_tests(go: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go tests as a program, with messages generated from the .proto."""
    assert go.exists()
    module = tmp_path_factory.mktemp("go") / "go_client"
    shutil.copytree(HERE, module)
    (module / "querator").mkdir()
    package = "google.golang.org/protobuf/cmd/protoc-gen-go"
    plugin = golang.build_tool(module, package, module / "protoc-gen-go")
    known = Path(grpc_tools.__file__).parent / "_proto"
    words = [
        *(f"-I{PROTO.parent}", f"-I{known}", f"--plugin=protoc-gen-go={plugin}"),
        *(f"--go_out={module}/querator", "--go_opt=paths=source_relative"),
        f"--go_opt=M{PROTO.name}=go_client/querator",
    ]
    assert protoc.main(["protoc", *words, PROTO.name]) == 0
    return golang.build_tests(module, module / "queue.test")


@pytest.mark.parametrize("name", TESTS)
def test_a_generated_client_in_go(server: Server, go_tests: Path, name: str) -> None:
    ran = subprocess.run(
        [go_tests, "-test.v", "-test.run", f"^{name}$"],
        env={**os.environ, "QUEUE_SERVER": server.address},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    for form in ("protobuf", "json", "snake_case_json"):
        assert f"--- PASS: {name}/{form}" in ran.stdout
