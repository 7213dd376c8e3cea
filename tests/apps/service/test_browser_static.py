"""The page's files: nothing foreign, nothing inline, no loose ends."""

from __future__ import annotations

import re

import pytest

from .browser import STATIC

pytestmark = pytest.mark.heavy

NAMESPACE = "http://www.w3.org/2000/svg"
SCRIPTS = {
    path.relative_to(STATIC).as_posix(): path.read_text() for path in sorted(STATIC.rglob("*.js"))
}
PAGES = {path.name: path.read_text() for path in sorted(STATIC.glob("*.html"))}
STYLES = {path.name: path.read_text() for path in sorted(STATIC.glob("*.css"))}


@pytest.mark.parametrize("name", [*SCRIPTS, *PAGES, *STYLES])
def test_no_file_names_another_host(name):
    text = {**SCRIPTS, **PAGES, **STYLES}[name].replace(NAMESPACE, "")
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+|url\(|@import", text) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_make_no_code_or_markup_out_of_text(name):
    text = SCRIPTS[name]
    assert (
        re.findall(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacent|Math\.random", text)
        == []
    )
    # What is said about somebody's answer is not said to the console either.
    assert "console." not in text


@pytest.mark.parametrize("name", PAGES)
def test_pages_have_nothing_inline(name):
    text = PAGES[name]
    assert re.findall(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", text) == []
    for link in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert (STATIC / link).is_file()


@pytest.mark.parametrize("script", SCRIPTS)
def test_imports_are_there_and_used(script):
    text = SCRIPTS[script]
    for names, source in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', text):
        for one in filter(None, map(str.strip, names.split(","))):
            given, _, own = one.partition(" as ")
            exported = rf"export (?:async )?(?:function\*?|const|class) {given}\b"
            assert re.search(exported, SCRIPTS[source]), (source, one)
            assert len(re.findall(rf"\b{own or given}\b", text)) > 1, one


@pytest.mark.parametrize(("page", "scripts"), [
    ("participate.html", ("participate.js", "answer.js", "sheet.js", "page.js")),
    ("owner.html", ("owner.js", "answers.js", "page.js")),
])  # fmt: skip
def test_every_element_that_scripts_ask_for_is_on_the_page(page, scripts):
    there = re.findall(r'\sid="([^"]+)"', PAGES[page])
    assert len(there) == len(set(there))
    asked = {one for name in scripts for one in re.findall(r'find\("([\w-]+)"\)', SCRIPTS[name])}
    assert asked - {"choice"} <= set(there)  # made where there are many labels
    labelled = re.findall(r'<label for="([^"]+)"', PAGES[page])
    assert set(labelled) <= set(there)
