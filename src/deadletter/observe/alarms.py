"""Alarms as CloudWatch takes them."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.alerts import ALARMS, DEPTH, CloudAlarm

_LONGEST: Final = 1_024  # characters of a dimension's value


def alarms(
    *,
    sources: Sequence[str] = (),
    queues: Sequence[str] = (),
    topic: str | None = None,
) -> list[dict[str, Any]]:
    """The alarms as `put-metric-alarm` takes them."""
    wanted = [
        _alarm(alarm, name, topic)
        for alarm in ALARMS
        for name in (sources if alarm.dimension else ("",))
    ]
    return wanted + [_alarm(DEPTH, queue, topic) for queue in queues]


def dimension(name: str) -> str:
    """
    A name as CloudWatch takes it: some ASCII, not too much, and no colon in front.

    It refuses all numbers that are sent together with one it does not take.
    """
    plain = name.encode("ascii", "backslashreplace").decode()
    spelled = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain)
    if not spelled.strip() or spelled.startswith(":"):
        spelled = f"\\{spelled}"
    return spelled[:_LONGEST]


def _alarm(alarm: CloudAlarm, name: str, topic: str | None) -> dict[str, Any]:
    dimensions = (
        [{"Name": alarm.dimension, "Value": dimension(name)}] if alarm.dimension else []
    )
    return {
        "AlarmName": f"deadletter-{alarm.name}{f'-{name}' if name else ''}",
        "AlarmDescription": alarm.about,
        "Namespace": alarm.namespace,
        "MetricName": alarm.metric,
        "Dimensions": dimensions,
        "Statistic": alarm.statistic,
        "Period": alarm.period,
        "EvaluationPeriods": alarm.periods,
        "Threshold": alarm.threshold,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",  # no news is that nothing died
        "AlarmActions": [topic] if topic else [],
    }
