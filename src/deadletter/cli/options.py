"""Options that mean the same wherever they are given."""

from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Yes: TypeAlias = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)
]
Reason: TypeAlias = Annotated[str, Parameter(show_default=False)]
Text: TypeAlias = Annotated[str, Parameter(show_default=False)]
FreeText: TypeAlias = Annotated[
    bool, Parameter(name="--text", negative="", show_default=False)
]
Shown: TypeAlias = Annotated[
    int, Parameter(name=["--limit", "-n"], validator=Number(gte=1))
]
AtMost: TypeAlias = Annotated[
    int | None, Parameter(name=["--limit", "-n"], validator=Number(gte=1))
]
Count: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=0))]
Seconds: TypeAlias = Annotated[float | None, Parameter(validator=Number(gt=0))]
