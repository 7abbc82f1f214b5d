"""`echomesh pipeline run --print-submit`: what to type for YARN and Kubernetes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from echomesh.cli.pipeline_options import Given

_DEPS: Final = "deps.tar.gz"
_KUBERNETES: Final = "k8s://https://CLUSTER:6443"
_MAIN: Final = str(Path(__file__).parents[1] / "__main__.py")
_FLAGS: Final = ("shared", "once", "new_checkpoint")
_VALUES: Final = ("server", "client", "password_file", "environment", "data", "home", "tables", "checkpoint", "metrics")


def commands(target: str, own: list[str], given: Given, packages: Sequence[str]) -> str:
    """Commands for both, with a word on what they need."""
    from echomesh.spark import submit

    others = f", packages={list(packages)}" if packages else ""
    make = [sys.executable, "-c", f"from echomesh.spark import submit; submit.archive({_DEPS!r}{others})"]
    yarn = ["spark-submit", "--master", "yarn", "--deploy-mode", "client", *submit.arguments(_DEPS)]
    image = ["--conf", "spark.kubernetes.container.image=IMAGE"]
    kubernetes = ["spark-submit", "--master", _KUBERNETES, "--deploy-mode", "cluster", *image]
    return "\n".join(
        [
            "# What executors need, made once:",
            shlex.join(make),
            "",
            "# YARN. The driver runs here, executors get the archive:",
            _joined([*yarn, _MAIN], arguments(target, own, given, "yarn")),
            "",
            '# Kubernetes. The image has Spark, `pip install "echomesh[spark]"`, and your file:',
            _joined([*kubernetes, f"local://{_MAIN}"], arguments(target, own, given, _KUBERNETES)),
        ]
    )


def arguments(target: str, own: list[str], given: Given, master: str) -> list[str]:
    """The words after the program: those of this command line, with another master."""
    words = ["pipeline", "run", target, *own, "--master", master]
    for name in _VALUES:
        if (value := getattr(given, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for setting in given.settings:
        words += ["--conf", setting]
    words += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(given, name)]
    return [*words, *(["--from", given.start] if given.start else [])]


def _joined(*groups: list[str]) -> str:
    return " \\\n    ".join(shlex.join(group) for group in groups)
