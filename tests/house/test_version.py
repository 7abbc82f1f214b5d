"""One version, wherever it is asked for."""

from __future__ import annotations

import re
from importlib.metadata import version

import echomesh
from tests.support.repository import ROOT


def test_the_installed_version_is_that_of_the_source() -> None:
    assert version("echomesh") == echomesh.__version__


def test_the_changelog_opens_with_this_version_or_with_what_is_unreleased() -> None:
    newest = re.search(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] in ("Unreleased", echomesh.__version__)
