"""The alert rules as a file that Prometheus reads."""

import json
from collections.abc import Sequence

from deadletter.core.alerts import RULES, AlertRule


def prometheus_rules(rules: Sequence[AlertRule] = RULES) -> str:
    """The rules as YAML; every text in it is written as JSON, which is YAML as well."""
    lines = ["groups:", "  - name: deadletter", "    rules:"]
    for rule in rules:
        lines += [f"      - alert: {rule.name}", f"        expr: {_text(rule.expr)}"]
        lines += [f"        for: {rule.lasting}"] if rule.lasting else []
        lines += ["        labels:", f"          severity: {rule.severity}"]
        lines += ["        annotations:", f"          summary: {_text(rule.summary)}"]
        if rule.description:
            lines.append(f"          description: {_text(rule.description)}")
    return "\n".join([*lines, ""])


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
