"""The numbers of several processes as one text."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deadletter.core.events import Received
from deadletter.observe.metrics import Counted
from deadletter.observe.observers import gathered


def told(sent: int, box: str) -> bytes:
    registry = CollectorRegistry()
    Counter("sent", "Sent.", ["box"], registry=registry).labels(box).inc(sent)
    Counter("bare", "No labels.", registry=registry).inc(sent)
    Histogram("took", "Took.", registry=registry, buckets=(1,)).observe(sent)
    return generate_latest(registry)


def test_each_number_says_which_process_it_is_of() -> None:
    text = gathered({"0": told(3, "a"), "1": told(5, "a")}).decode()

    families = {f.name: f for f in text_string_to_metric_families(text)}
    sent = {
        sample.labels["process"]: sample.value
        for sample in families["sent"].samples
        if sample.name == "sent_total"
    }
    bare = [s for s in families["bare"].samples if s.name == "bare_total"]
    assert sent == {"0": 3, "1": 5}
    assert [(s.labels, s.value) for s in bare] == [({"process": "0"}, 3), ({"process": "1"}, 5)]
    assert families["took"].type == "histogram"
    assert text.count("# TYPE sent_total ") == 1  # a family stands in one place


def test_hostile_labels_come_through_as_they_are() -> None:
    hostile = 'a} 9\n# HELP x "{\\ \r'

    text = gathered({"0": told(1, hostile), "1": told(2, "b")}).decode()

    values = {
        sample.labels["box"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "sent_total"
    }
    assert values == {hostile: 1, "b": 2}


async def test_counters_of_a_process_are_exported() -> None:
    counted = Counted()

    counted.observe(Received(mailbox="orders", count=7))

    line = b'dlq_messages_received_total{mailbox="orders"} 7.0'
    assert line in (await counted.text()).split(b"\n")
