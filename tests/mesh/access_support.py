"""An access file with clients of every kind; all of them have the password `secret`."""

from __future__ import annotations

from echomesh.mesh.passwords import PasswordHash

SECRET = PasswordHash.of("secret").text
CLIENTS = f"""
[clients.shop]
password = "{SECRET}"
environments = ["TST"]
publish = ["orders/**"]
subscribe = ["orders/**"]

[clients.slow]
password = "{SECRET}"
environments = ["TST"]
publish = ["**"]
publishes_per_second = 2

[clients.root]
password = "{SECRET}"
environments = ["TST", "VAL", "PRD"]
publish = ["**"]
subscribe = ["**"]
admin = true

[clients.good]
password = "{SECRET}"
environments = ["TST"]
publish = ["**"]
subscribe = ["**"]
"""
