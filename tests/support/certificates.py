"""Certificates for tests, made by the openssl of this machine."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key."""

    pem: Path
    key: Path


class Authority:
    """A CA of its own, and what it signs."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make certificates with")
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.pem = directory / "ca.pem"
        usage = "keyUsage=critical,keyCertSign,cRLSign"
        self._run("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", *_name("test CA"), "-addext", usage)

    def issue(self, name: str, *hosts: str) -> Certificate:
        """A certificate for these hosts: names, or IP addresses."""
        names = ",".join(f"{'IP' if host.replace('.', '').isdigit() else 'DNS'}:{host}" for host in hosts)
        extensions = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        if names:
            extensions += f"subjectAltName={names}\n"
        (self.directory / f"{name}.ext").write_text(extensions)
        self._run("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", *_name(name))
        self._run(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-extfile", f"{name}.ext",
        )  # fmt: skip
        return Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


def _name(name: str) -> tuple[str, str]:
    return "-subj", f"/CN={name}"
