"""The transcript in the README is the output of the demo."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.transcript import difference
from pipeline import graph
from pipeline import pipestream_pb2 as pb
from servers import Kafka, Missing
from servers.common import ROOT
from servers.fixtures import do_without

pytestmark = pytest.mark.xdist_group("kafka_server")
README = ROOT / "examples" / "pipeline" / "README.md"


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_demo_tells_the_story_of_the_readme() -> None:
    try:
        Kafka.find()
    except Missing as missing:
        do_without(missing)
    path = os.pathsep.join(str(ROOT / folder) for folder in ("examples", "tests"))
    told = subprocess.run(
        [sys.executable, "-m", "pipeline.demo", "--once"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert told.returncode == 0, told.stderr
    shown = block("text").splitlines()
    assert difference(shown, told.stdout.splitlines()) is None


def test_the_graph_of_the_readme_has_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(block("json"))

    loaded = graph.load(file)

    (node,) = loaded.nodes.values()
    bare = pb.GraphNode(node_id=node.id, module_id=node.module_id)
    message = pb.Graph(cluster_id="prod", nodes=[bare])
    assert loaded == graph.read(message)
