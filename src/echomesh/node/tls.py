"""TLS 1.3 for a server, and for the bridges that it makes."""

from __future__ import annotations

import ssl
from pathlib import Path

from echomesh.errors import BadConfig
from echomesh.mesh.client_options import tls_context
from echomesh.node.config import BridgesConfig, TlsConfig


def server_context(config: TlsConfig) -> ssl.SSLContext | None:
    """For those who connect to this server; None without a certificate."""
    if config.certificate is None:
        for name in ("key", "client_ca"):
            if getattr(config, name) is not None:
                raise BadConfig(
                    f"tls.{name} is worth nothing without a certificate: set tls.certificate", f"tls.{name}"
                )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_certificate(context, config.certificate, config.key)
    if config.client_ca is not None:
        _check_readable(config.client_ca, "tls.client_ca")
        try:
            context.load_verify_locations(config.client_ca)
        except ssl.SSLError:
            raise _no_certificate(config.client_ca, "tls.client_ca") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def bridge_context(bridges: BridgesConfig, tls: TlsConfig) -> ssl.SSLContext | None:
    """For the bridges that this server makes; None when they go without TLS."""
    if not bridges.tls:
        if bridges.ca is not None:
            raise BadConfig("bridges.ca is worth nothing without TLS: set bridges.tls = true", "bridges.ca")
        return None
    if bridges.ca is not None:
        _check_readable(bridges.ca, "bridges.ca")
    try:
        context = tls_context(bridges.ca or True)
    except ssl.SSLError:
        raise _no_certificate(bridges.ca, "bridges.ca") from None
    if context is not None and tls.certificate is not None:
        _load_certificate(context, tls.certificate, tls.key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for path, name in ((certificate, "tls.certificate"), (key or certificate, "tls.key")):
        _check_readable(path, name)
    try:
        # Without this a key with a passphrase would stop the server to ask for it.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        what = "no certificate and key that belong together" if isinstance(error, ssl.SSLError) else str(error)
        raise BadConfig(f"tls.certificate = {certificate}, tls.key = {key or certificate}: {what}", "tls.key") from None


def _no_certificate(path: Path | None, name: str) -> BadConfig:
    return BadConfig(f"{name} = {path}: there is no certificate in it (PEM is wanted)", name)


def _check_readable(path: Path, name: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise BadConfig(f"{name} = {path}: it can't be read: {error.strerror or error}", name) from None


def _no_passphrase() -> str:
    raise ValueError("a key with a passphrase can't be used, as nobody is there to type it: openssl pkey removes it")
