"""The site as it is built, opened from the disk: search, figures, and no other host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy
pytest.importorskip("mkdocs", reason="pip install '.[docs]'.")
pytest.importorskip("material", reason="pip install '.[docs]'.")
sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright.")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.fixture(name="page")
def _page() -> Iterator[Any]:
    """A narrow page that fails where it asks another host, or where a script fails."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("No Chromium found: install the chromium package.")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda one: wrong.append(one.url) if one.url.startswith("http") else None,
        )
        yield page
        browser.close()
    assert not wrong


def test_search_finds_pages_from_the_disk(site: Path, page: Any) -> None:
    page.goto(f"file://{site}/index.html")
    page.click("label[for=__search]:visible")
    page.locator("input[name=query]").press_sequentially("budget")
    found = page.locator(".md-search-result__link")
    found.first.wait_for(timeout=60_000)
    assert any("queries.html" in one.get_attribute("href") for one in found.all())


def test_panels_are_one_per_row_and_enlarge(site: Path, page: Any) -> None:
    page.goto(f"file://{site}/results/collect.html")
    panels = page.locator("figure.panels").first.locator("a.enlarge")
    places = [panel.bounding_box() for panel in panels.all()]
    assert len(places) > 2
    assert len({round(place["x"]) for place in places}) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    panels.first.click()
    shown = page.locator("dialog img").first
    shown.wait_for()
    assert shown.get_attribute("alt")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


def test_every_image_of_the_site_is_there_and_described(site: Path) -> None:
    for path in site.rglob("*.html"):
        for image in re.findall(r"<img [^>]*>", path.read_text()):
            (source,), (alt,) = (
                re.findall(rf' {name}="([^"]*)"', image) for name in ("src", "alt")
            )
            assert len(alt) > 30, (path.name, image)
            assert (path.parent / source).exists(), (path.name, source)
