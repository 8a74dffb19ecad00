"""Examples of answers for people who look at letters."""

from datetime import UTC, datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.triage.attention import Need, NeedKind
from deadletter.office.triage.common_values import CommonValues, SharedValue, VaryingField
from deadletter.office.triage.completion import Option
from deadletter.office.triage.facets import Facet, Facets, FacetValue, Nearby
from deadletter.office.triage.json_layout import BodyLine, LineKind
from deadletter.office.triage.layout import BodySlice, Form
from deadletter.office.triage.shift_report import Deed, ReplayLine, ShiftReport

_AT: Final = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
_GROUP: Final = "f1a2b3c4d5e6"
_CONTENTS: Final = BodySlice(
    form=Form.PRETTY,
    lines=(
        BodyLine(kind=LineKind.OBJECT, text="{", members=1),
        BodyLine(kind=LineKind.NUMBER, name='"order"', text="17", depth=1),
        BodyLine(kind=LineKind.END, text="}"),
    ),
    start=0,
    after=None,
    size=13,
)
_NEED: Final = Need(
    kind=NeedKind.REGRESSED,
    text="KeyError vat_rate in orders was resolved in 1.8 and fails again: 256 open",
    target=_GROUP,
    source="orders",
    since=_AT,
    count=256,
)

ANSWERS: Final[dict[str, Any]] = {
    "count_facets_of_letters": (
        Facets(
            500,
            (
                Facet(
                    field="error",
                    values=(
                        FacetValue(value="TimeoutError", count=312, query="error:TimeoutError"),
                    ),
                    others=188,
                ),
            ),
        )
    ),
    "list_nearby": ([Nearby(field="key", query="key:c-7", letters=3, newer=2)]),
    "get_contents": (_CONTENTS),
    "reveal_contents": (_CONTENTS),
    "get_common_values": (
        CommonValues(
            group=_GROUP,
            looked_at=200,
            opened=200,
            shared=(SharedValue(field="body.country", value="CH", count=200, distinct=1),),
            varying=(
                VaryingField(field="body.amount", present=200, distinct=143, least=3, most=9120),
            ),
        )
    ),
    "suggest": ([Option(text="orders", about="letters", start=7, end=9, count=377)]),
    "list_needs": ([_NEED]),
    "get_report": (
        ShiftReport(
            since=_AT,
            until=_AT,
            died=LetterCount(412),
            new=(),
            regressed=(),
            deeds=(Deed(actor="anna", action="move to reviewed", acts=12, targets=12),),
            all_deeds=True,
            replays=(
                ReplayLine(
                    id="019a8c3e-7b1d-7c2a-9d4e-5f6071829304",
                    query="is:pending source:orders",
                    actor="anna",
                    state=CampaignState.RUNNING,
                    handled=1,
                    failed=0,
                    waiting=1,
                    unsent=2,
                ),
            ),
            open=400,
            needs=(_NEED,),
        )
    ),
}
"""Answers by the name of the operation."""
