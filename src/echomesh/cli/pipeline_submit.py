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
_YARN: Final = ["spark-submit", "--master", "yarn", "--deploy-mode", "client"]
_IMAGE: Final = ["--conf", "spark.kubernetes.container.image=IMAGE"]
_IN_IMAGE: Final = "local://PACKAGE/__main__.py"
_ABOUT_IMAGE: Final = (
    '# Kubernetes. IMAGE has Spark, `pip install "echomesh[spark]"` and your file; PACKAGE is where echomesh is there:',
    "# python -c 'import echomesh; print(echomesh.__path__[0])'",
)
_FLAGS: Final = ("shared", "once", "new_checkpoint")
_VALUES: Final = ("server", "client", "password_file", "environment", "data", "home", "tables", "checkpoint", "metrics")


def commands(target: str, own: list[str], given: Given, packages: Sequence[str]) -> str:
    """Commands for the cluster that was named, or for both kinds, with a word on what they need."""
    master = given.master
    parts = []
    if not master.startswith("k8s://"):
        parts += [*_yarn(packages), _joined(_YARN + _deps(), [_MAIN], arguments(target, own, given, "yarn"))]
    if master != "yarn":
        cluster = master if master.startswith("k8s://") else _KUBERNETES
        kubernetes = ["spark-submit", "--master", cluster, "--deploy-mode", "cluster", *_IMAGE, _IN_IMAGE]
        parts += [*([""] if parts else []), *_ABOUT_IMAGE, _joined(kubernetes, arguments(target, own, given, cluster))]
    return "\n".join(parts)


def _yarn(packages: Sequence[str]) -> list[str]:
    others = f", packages={list(packages)}" if packages else ""
    make = [sys.executable, "-c", f"from echomesh.spark import submit; submit.archive({_DEPS!r}{others})"]
    return [
        "# What executors need, made once:",
        shlex.join(make),
        "",
        "# YARN. The driver runs here, executors get the archive:",
    ]


def _deps() -> list[str]:
    from echomesh.spark import submit

    return submit.arguments(_DEPS)


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
