"""A real browser: the page of the documentation subscribes and publishes, where the server lets its origin."""

from __future__ import annotations

import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echomesh.mesh.http import HttpOptions
from tests.mesh.access_support import CLIENTS
from tests.mesh.http_support import Web, basic
from tests.support.markdown import blocks
from tests.support.repository import ROOT

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 60.0
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium")

REPORTING = """
<script>
  const report = (what) => fetch("/report", { method: "POST", body: JSON.stringify(what) });
  const list = document.getElementById("orders");
  new MutationObserver(() => report({ seen: list.textContent })).observe(list, { childList: true });
  events.onopen = () => publish("orders/new", "order.created", { number: 7 }).then(
    (answer) => report({ answer }),
    (error) => report({ refused: String(error) }),
  );
  events.onerror = () => report({ closed: true });
</script>
"""


class Pages:
    """Serves one page, and takes what it reports."""

    def __init__(self) -> None:
        self.page = ""
        self.reports: queue.Queue[dict[str, Any]] = queue.Queue()
        pages = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(pages.page.encode())

            def do_POST(self) -> None:
                pages.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def next(self) -> dict[str, Any]:
        """The next report."""
        return self.reports.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()


@contextmanager
def browser(directory: Path, url: str) -> Iterator[None]:
    """The page in a browser without a window; it and all its processes end here."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               f"--user-data-dir={directory}", url]  # fmt: skip
    with (directory.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def documented(web: Web) -> str:
    """The page of the documentation, for this server."""
    (page,) = (block.code for block in blocks((ROOT / "docs/http.md").read_text()) if block.info == ("html",))
    assert page.count("http://localhost:8080/") == 2
    return page.replace("http://localhost:8080/", f"http://127.0.0.1:{web.port}/") + REPORTING


def test_the_documented_page_publishes_and_sees_its_own_event(shm_dir: Path, tmp_path: Path, pages: Pages) -> None:
    with Web(shm_dir, None, HttpOptions(origins=(pages.origin,))) as web:
        pages.page = documented(web)
        with browser(tmp_path / "profile", pages.origin):
            told = pages.next() | pages.next()  # the answer and the event come over two connections, in any order
            assert told == {
                "answer": {"topic": "orders/new", "offset": 0},
                "seen": 'orders/new 0: {"number":7}',
            }


def test_a_page_of_another_origin_neither_reads_nor_publishes(shm_dir: Path, tmp_path: Path, pages: Pages) -> None:
    with Web(shm_dir, None, HttpOptions(origins=("https://shop.example",))) as web:
        # It tries to publish whether it may read or not.
        pages.page = documented(web) + "<script>events.onopen()</script>"
        with browser(tmp_path / "profile", pages.origin):
            told = {*pages.next(), *pages.next()}
            assert told == {"refused", "closed"}
        assert web.ask("GET", "/topics").json["topics"] == []


def test_a_page_that_sends_the_password_itself_may_be_of_any_origin(
    shm_dir: Path, tmp_path: Path, pages: Pages
) -> None:
    with Web(shm_dir, CLIENTS, HttpOptions(origins=("*",))) as web:
        asking = f"fetch('http://127.0.0.1:{web.port}/topics', {{ headers: {json.dumps(basic('shop'))} }})"
        pages.page = (
            f"<script>{asking}.then((answer) => answer.json()).then((found) => "
            'fetch("/report", { method: "POST", body: JSON.stringify(found) }))</script>'
        )
        with browser(tmp_path / "profile", pages.origin):
            assert pages.next() == {"environment": "TST", "topics": []}
