"""The examples that are pipelines do what their tests say."""

from __future__ import annotations

import runpy

import pytest

from tests.support.repository import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("test_*.py")), ids=lambda path: path.stem)
def test_an_example_passes_its_own_test(file: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    found = [value for name, value in runpy.run_path(str(file)).items() if name.startswith("test_")]
    assert found
    for test in found:
        test()
