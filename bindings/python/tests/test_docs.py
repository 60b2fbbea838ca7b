"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tenure

MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(tenure.__path__)
    if module.name not in ("_native", "celery", "compat")
)


@pytest.mark.parametrize("name", ["", *MODULES])
def test_docstrings(name: str) -> None:
    if name == "prometheus":
        pytest.importorskip("prometheus_client")
    module = importlib.import_module(f"tenure.{name}" if name else "tenure")
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    failed, tried = doctest.testmod(module, optionflags=flags)
    assert failed == 0
    if name in ("", "_cron", "blocking", "fence", "prometheus"):
        assert tried > 0
