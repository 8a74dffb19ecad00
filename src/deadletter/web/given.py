"""What every route is handed: the place it works in, and who asks."""

from typing import TypeAlias

from litestar.di import NamedDependency

from deadletter.core.access import Pass

from .place import Place

Here: TypeAlias = NamedDependency[Place]  # as `place`
Who: TypeAlias = NamedDependency[Pass]  # as `who`
