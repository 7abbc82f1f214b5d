"""What no text of the repository may say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT, texts

# Package clients know where their registry is, and on some machines it is another one.
REGISTRY = re.compile(
    r"\b(?:pypi\.(?:org|python\.org)|(?:files\.)?pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com"
    r"|deb\.debian\.org|archive\.ubuntu\.com|crates\.io|repo1?\.maven\.(?:apache\.)?org|anaconda\.org)\b"
)
HOME = re.compile(r"(?<![\w.])/(?:home|root|Users|work)/[\w.-]+")


def naming(pattern: re.Pattern[str], root: Path) -> list[str]:
    return [f"{path.name}: {hit[0]}" for path, text in texts(root) for hit in pattern.finditer(text)]


def test_no_file_names_a_package_registry() -> None:
    assert naming(REGISTRY, ROOT) == []


def test_no_file_names_a_directory_of_one_machine() -> None:
    assert naming(HOME, ROOT) == []


@pytest.mark.parametrize("host", [("pypi", "org"), ("files.pythonhosted", "org"), ("registry.npmjs", "org")])
def test_a_registry_is_found_out(tmp_path: Path, host: tuple[str, str]) -> None:
    (tmp_path / "pip.conf").write_text(f"index-url = https://{'.'.join(host)}/simple")
    assert len(naming(REGISTRY, tmp_path)) == 1


def test_a_home_directory_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("see " + "/".join(["", "home", "somebody", "echomesh"]))
    assert len(naming(HOME, tmp_path)) == 1


def test_the_walk_sees_the_files_that_matter() -> None:
    seen = {str(path.relative_to(ROOT)) for path, _ in texts()}
    assert {"README.md", "Makefile", "pyproject.toml", ".ci/run", "requirements/all.txt"} <= seen
    assert not any(name.startswith((".venv", ".git/", "build/")) for name in seen)
