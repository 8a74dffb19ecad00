"""Tools for authors of backends and tests: contracts, fakes, virtual time."""
