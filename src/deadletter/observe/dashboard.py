"""A Grafana dashboard for the metrics of deadletter."""

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

WIDTH: Final = 24  # of a row, in Grafana's units
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(Struct, frozen=True, kw_only=True):
    """One panel of the dashboard: queries by the names of their lines."""

    title: str
    queries: Mapping[str, str]
    about: str = ""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    alarming: float | None = None  # the value from which it is red


PANELS: Final = (
    Panel(
        title="Open letters",
        queries={"": "sum(max by (mailbox) (dlq_queue_depth))"},
        kind="stat",
        width=4,
        height=5,
        alarming=100,
    ),
    Panel(
        title="Oldest unreviewed",
        queries={"": "max(dlq_oldest_unreviewed_age_seconds)"},
        kind="stat",
        unit="s",
        width=4,
        height=5,
        alarming=86_400,
    ),
    Panel(
        title="New groups, last day",
        queries={"": "max(increase(dlq_new_groups_total[1d]))"},
        kind="stat",
        width=4,
        height=5,
        alarming=1,
    ),
    Panel(
        title="Letters not stored, last hour",
        queries={"": "sum(increase(dlq_dead_letter_failures_total[1h]))"},
        about="Nothing is lost: messages stay in their mailbox until a letter can be stored.",
        kind="stat",
        width=4,
        height=5,
        alarming=1,
    ),
    Panel(
        title="Missing or too many",
        queries={"": "max(dlq_reconcile_mismatch)"},
        about="`dlq verify` shows the mailbox.",
        kind="stat",
        width=4,
        height=5,
        alarming=1,
    ),
    Panel(
        title="Office answers", queries={"": "max(dlq_office_up)"}, kind="stat", width=4, height=5
    ),
    Panel(
        title="Deaths per minute",
        queries={"{{source}}": "60 * max by (source) (rate(dlq_arrivals_total[5m]))"},
        about="All arrivals, including letters that are removed immediately.",
    ),
    Panel(
        title="Open letters by source",
        queries={"{{mailbox}}": "max by (mailbox) (dlq_queue_depth)"},
    ),
    Panel(title="Groups with open letters", queries={"{{status}}": "max by (status) (dlq_groups)"}),
    Panel(
        title="Attempts per second, by outcome",
        queries={"{{outcome}}": "sum by (outcome) (rate(dlq_attempts_total[5m]))"},
    ),
    Panel(
        title="Errors per second, by classification",
        queries={
            "{{category}} {{trouble}}": "sum by (category, trouble) (rate(dlq_errors_total[5m]))"
        },
    ),
    Panel(
        title="Deaths per minute, by reason",
        queries={"{{reason}}": "60 * sum by (reason) (rate(dlq_messages_dead_lettered_total[5m]))"},
    ),
    Panel(
        title="Handlers",
        queries={
            f"p{share:g}": f"histogram_quantile({share / 100:g}, sum by (le) "
            "(rate(dlq_handler_duration_seconds_bucket[5m])))"
            for share in (50, 95, 99)
        }
        | {
            "p95 {{outcome}}": "histogram_quantile(0.95, sum by (le, outcome) "
            "(rate(dlq_handler_duration_seconds_bucket[5m])))"
        },
        about="Failed attempts are included, such as those that timed out.",
        unit="s",
    ),
    Panel(
        title="Time in the dead-letter queue",
        queries={
            f"p{share:g}": f"histogram_quantile({share / 100:g}, sum by (le) "
            "(rate(dlq_message_age_seconds_bucket[1h])))"
            for share in (50, 95)
        },
        unit="s",
    ),
    Panel(
        title="DLQ handlers",
        queries={
            "p95": "histogram_quantile(0.95, sum by (le) "
            "(rate(dlq_processing_duration_seconds_bucket[5m])))",
            "{{action}} per second": "sum by (action) (rate(dlq_messages_processed_total[5m]))",
        },
    ),
    Panel(
        title="Replay, letters per minute",
        queries={
            "sent": "60 * max(dlq_replay_rate)",
            "{{outcome}}": "60 * max by (outcome) (rate(dlq_replay_messages_total[5m]))",
        },
    ),
    Panel(
        title="Brake and availability",
        queries={
            "brake {{mailbox}}": "max by (mailbox) (dlq_breaker_state)",
            "{{what}} unreachable": "max by (what) (dlq_out_of_reach)",
        },
        about="1 while the brake is open, or a backend is unreachable.",
    ),
    Panel(
        title="Unexpected events per hour",
        queries={"{{kind}}": "3600 * sum by (kind) (rate(dlq_mishaps_total[1h]))"},
    ),
)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    model = {
        "uid": "deadletter",
        "title": "Dead letters",
        "tags": ["deadletter"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Prometheus",
                }
            ]
        },
        "panels": _laid_out(),
    }
    return json.dumps(model, indent=2, ensure_ascii=False) + "\n"


def _laid_out() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(PANELS, 1):
        if x + panel.width > WIDTH:
            x, y, height = 0, y + height, 0
        panels.append(_drawn(panel, number, x, y))
        x, height = x + panel.width, max(height, panel.height)
    return panels


def _drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarming is not None:
        steps.append({"color": "red", "value": panel.alarming})
    thresholds = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": thresholds},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": query,
                "legendFormat": name,
                "datasource": _SOURCE,
            }
            for index, (name, query) in enumerate(panel.queries.items())
        ],
    }
