"""A real Chromium for tests, and a server of the page's modules under the page's own rules."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).parents[3] / "src/tacit/apps/service/static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _executable() -> str:
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("No Chromium found: install the chromium package to run the page's tests.")
    return found


def axe() -> str:
    """The checker of pages, which the project's own script fetches."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "tacit" / "axe-core-4.14.0.min.js"
    if not path.is_file():
        pytest.skip("No axe-core found: run .ci/programs to fetch it.")
    return path.read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser, closed at the end."""
    sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright.")
    # Chromium's own sandbox does not start for root.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_executable(), args=flags)
        yield browser
        browser.close()


class _Handler(SimpleHTTPRequestHandler):
    """Files of the page, and an empty page at any other address."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, directory=str(STATIC))

    def do_GET(self) -> None:
        if self.path.endswith(".js"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *given: Any) -> None:
        pass


@contextmanager
def modules() -> Iterator[str]:
    """The address of a server of the modules alone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module", name="browser")
def browser_fixture() -> Iterator[Any]:
    """A browser for the tests of one file."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", name="call")
def call_fixture(browser: Any) -> Iterator[Any]:
    """Run a function of modules: `call("channels", "(m, given) => …", given)`."""
    with modules() as address:
        page = browser.new_page()
        page.goto(address)

        def call(module: str, body: str, given: Any = None) -> Any:
            code = f"async (given) => (({body}))(await import('/{module}.js'), given)"
            return page.evaluate(code, given)

        yield call
        page.close()
