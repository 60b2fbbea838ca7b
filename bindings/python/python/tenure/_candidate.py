"""One process incarnation on one store."""

from __future__ import annotations

import os

from tenure import _native
from tenure._arguments import text


class Candidate:
    """One process incarnation that takes part in elections on one store.

    It has one driver and one connection for all its elections. A program with many elections shares
    one: ``Election(name, candidate)``. The URL is read and checked here; the store is opened when
    the first election starts.

    >>> import tenure
    >>> tenure.Candidate("mysql://db/shop")
    Traceback (most recent call last):
    ...
    tenure._errors.ConfigError: ...
    """

    __slots__ = ("_native",)

    def __init__(self, store: str | None = None, *, label: str | None = None) -> None:
        if store is None:
            store = os.environ.get("TENURE_STORE") or None
        else:
            text("store", store)
        if label is not None:
            text("label", label)
        self._native = _native.Candidate(store, label)

    @property
    def address(self) -> str:
        """Where the store is, without secrets."""
        return self._native.address

    def __repr__(self) -> str:
        return f"<tenure.Candidate on {self.address}>"
