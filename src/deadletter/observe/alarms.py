"""Alarms as CloudWatch takes them."""

from collections.abc import Sequence
from typing import Any

from deadletter.core.alerts import ALARMS, DEPTH, CloudAlarm


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


def _alarm(alarm: CloudAlarm, name: str, topic: str | None) -> dict[str, Any]:
    dimensions = [{"Name": alarm.dimension, "Value": name}] if alarm.dimension else []
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
