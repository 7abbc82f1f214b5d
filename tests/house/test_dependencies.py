"""Every dependency has its reason, written down."""

from __future__ import annotations

import re
import tomllib

from tests.support.repository import ROOT


def declared(pyproject: str) -> set[str]:
    """The names of all packages that users or developers are asked to install."""
    project = tomllib.loads(pyproject)
    extras = project["project"].get("optional-dependencies", {})
    groups = project.get("dependency-groups", {})
    entries = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(entry for extra in extras.values() for entry in extra),
        *(entry for group in groups.values() for entry in group if isinstance(entry, str)),
    ]
    names = {re.split(r"[<>=!~\[ ;]", entry)[0].lower() for entry in entries}
    return names - {project["project"]["name"]}


def explained(record: str) -> dict[str, list[str]]:
    """The rows of the table in the decision record: name, and its other cells."""
    rows = (line.strip("| ").split("|") for line in record.splitlines() if line.startswith("| `"))
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows}


RECORD = ROOT / "docs" / "decisions" / "0002-dependencies.md"


def test_every_dependency_has_its_reason_and_every_reason_its_dependency() -> None:
    assert set(explained(RECORD.read_text())) == declared((ROOT / "pyproject.toml").read_text())


def test_no_cell_of_the_table_is_empty() -> None:
    rows = explained(RECORD.read_text())
    assert [name for name, cells in rows.items() if len(cells) != 3 or not all(cells)] == []
