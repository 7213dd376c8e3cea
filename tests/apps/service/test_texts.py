"""The catalogues of the participants' page: complete in every language, and its only words."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.apps.service.campaign import INVITED, LINKED, SEEN, Campaign
from tacit.apps.service.problems import KNOWN
from tacit.data.schema import Categorical, Continuous, TableSchema

from .browser import STATIC

TEXTS = STATIC / "texts"
LANGUAGES = sorted(path.stem for path in TEXTS.glob("*.js"))
CATEGORIES = {
    "en": {"one", "other"},
    "de": {"one", "other"},
    "fr": {"one", "many", "other"},
    "es": {"one", "many", "other"},
    "ar": {"zero", "one", "two", "few", "many", "other"},
}
"""Plural categories, as `Intl.PluralRules` has them."""
DEVELOPERS = ("encoder: ", "channel: ", "survey: ", "tacit campaign take-part ")
"""Errors that no person can cause, which the page shows inside a sentence, and a command."""
NO_WORDS = {
    "#fill :is(input, select), #choices :is(input, select)",
    "input, select",
    "(prefers-color-scheme: dark)",
    "tile large",
    "tiles rows",
    "Bearer ${}",
    *("English", "Deutsch", "Français", "Español"),
}
"""Selectors, classes, a header, and the languages by their own names."""


def catalogue(language: str) -> dict[str, Any]:
    """Read a catalogue: a module that exports one JSON object."""
    text = (TEXTS / f"{language}.js").read_text(encoding="utf-8")
    head, tail = "export default ", ";\n"
    assert text.startswith(head), language
    assert text.endswith(tail), language
    pairs = json.loads(text[len(head) : -len(tail)], object_pairs_hook=list)
    assert len({key for key, _ in pairs}) == len(pairs), language
    return {key: dict(one) if isinstance(one, list) else one for key, one in pairs}


CATALOGUES = {language: catalogue(language) for language in LANGUAGES}
ENGLISH = CATALOGUES["en"]
PAGE = (STATIC / "participate.html").read_text(encoding="utf-8")
_FILES = re.search(r"FILES = \[(.*?)\]", (STATIC / "worker.js").read_text(), re.S)
assert _FILES is not None
FILES = re.findall(r'"([^"]+)"', _FILES[1])
SCRIPTS = {
    name: (STATIC / name).read_text(encoding="utf-8")
    for name in FILES
    if name.endswith(".js") and not name.startswith("texts/")
}
HOLE = "${}"
"""What stands in a template literal for an expression, whose own literals are listed apart."""


def literals(script: str) -> list[str]:
    """Return the string and template literals of a script, without those in comments."""
    found: list[str] = []
    _code(script, 0, found)
    return found


def _code(script: str, at: int, found: list[str]) -> int:
    """Read code up to its end, or to the brace that closes it; return where that is."""
    depth = 0
    while at < len(script):
        sign = script[at]
        if script.startswith("//", at):
            at = script.find("\n", at)
        elif script.startswith("/*", at):
            at = script.index("*/", at) + 1
        elif sign == "/" and script[:at].rstrip()[-1:] in "(,=:[!&|?{};":  # a regular expression
            at += len(re.match(r"/(?:\\.|\[(?:\\.|[^\]])*\]|[^/\\\[])+/", script[at:])[0]) - 1
        elif sign == '"':
            one = re.match(r'"((?:\\.|[^"\\])*)"', script[at:])
            found.append(one[1])
            at += len(one[0]) - 1
        elif sign == "`":
            at = _template(script, at + 1, found)
        elif sign == "{":
            depth += 1
        elif sign == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return at


def _template(script: str, at: int, found: list[str]) -> int:
    text = ""
    while script[at] != "`":
        if script.startswith("${", at):
            text += HOLE
            at = _code(script, at + 2, found)
        else:
            text += script[at]
        at += 1
    found.append(text)
    return at


def forms(entry: Any) -> dict[str, str]:
    return entry if isinstance(entry, dict) else {"": entry}


def places(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


# --- the catalogues --------------------------------------------------------------------------


def test_there_are_five_languages_and_one_is_written_from_right_to_left():
    declared = re.search(r"LANGUAGES = \{(.*?)\}", SCRIPTS["language.js"])
    assert declared is not None
    assert sorted(re.findall(r"(\w+): \"", declared[1])) == LANGUAGES == sorted(CATEGORIES)
    assert "ar" in LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_missing_and_none_is_left_over(language):
    assert list(CATALOGUES[language]) == list(ENGLISH)


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_have_the_places_of_the_english_ones(language):
    for key, entry in CATALOGUES[language].items():
        expected = set().union(*(places(one) for one in forms(ENGLISH[key]).values()))
        for category, text in forms(entry).items():
            assert text.strip() == text != "", key
            missing = expected - places(text)
            assert places(text) <= expected, key
            # "One report" and "two reports" need no digit.
            assert missing <= ({"count"} if category in ("zero", "one", "two") else set()), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_plurals_have_every_form_of_the_language(language):
    for key, entry in CATALOGUES[language].items():
        if isinstance(entry, str):
            assert isinstance(ENGLISH[key], str), key  # where one needs forms, all have them
            continue
        assert "{count}" in entry["other"], key
        assert set(entry) <= CATEGORIES[language], key
        rare = set() if isinstance(ENGLISH[key], dict) else {"zero", "one"}  # always two or more
        assert set(entry) >= CATEGORIES[language] - rare, key


@pytest.mark.parametrize("language", [one for one in LANGUAGES if one != "en"])
def test_texts_are_translated(language):
    same = {key for key, entry in CATALOGUES[language].items() if entry == ENGLISH[key]}
    letters = {
        key for key in same if re.search(r"[a-z]{4}", re.sub(r"\{\w+\}", "", str(ENGLISH[key])))
    }
    assert letters <= {"term-contact"}  # "Questions" is French, too


# --- the scripts -----------------------------------------------------------------------------


LITERALS = {name: literals(script) for name, script in SCRIPTS.items()}


def asked_for() -> tuple[set[str], list[re.Pattern[str]]]:
    """Return the keys that page and scripts name, and patterns of those that they put together."""
    names, patterns = set(re.findall(r'data-(?:text|label)="([^"]+)"', PAGE)), []
    for one in (one for listed in LITERALS.values() for one in listed):
        if re.fullmatch(r"(?:[a-z]{4,}-)\$\{\}[a-z-]*", one):
            patterns.append(re.compile(re.escape(one).replace(re.escape(HOLE), "[a-z0-9-]+")))
        names.add(one)
    return names, patterns


def test_every_text_is_used():
    names, patterns = asked_for()
    unused = {
        key
        for key in ENGLISH
        if key not in names
        and not key.startswith("limit-")  # found by their English sentence
        and not any(pattern.fullmatch(key) for pattern in patterns)
    }
    assert unused == set()


def test_every_text_that_is_asked_for_is_there():
    asked = set(re.findall(r'data-(?:text|label)="([^"]+)"', PAGE))
    for script in SCRIPTS.values():
        for call in re.findall(
            r"\b(?:text|pieces|surer|names|guess|Told)\(([^()]*(?:\([^()]*\))?[^()]*)", script
        ):
            first = call.split(", {")[0]
            asked |= {one for one in re.findall(r'"([a-z][a-z0-9-]+)"', first) if "-" in one}
    assert len(asked) > 150
    assert asked - set(ENGLISH) == set()


def test_scripts_and_page_hold_no_words_of_their_own():
    for name, listed in LITERALS.items():
        for one in listed:
            said = one.replace(HOLE, " ")
            prose = re.search(r"[A-Za-z]{2,}[,;:.]? [A-Za-z]{2,}", said)
            word = re.match(r"[A-Z][a-z]+(?![a-zA-Z-])", said)
            if (prose or word) and not one.startswith(DEVELOPERS):
                assert one in NO_WORDS, (name, one)
    body = re.sub(r"<noscript>.*?</noscript>|<title>.*?</title>|<!--.*?-->", "", PAGE, flags=re.S)
    assert re.findall(r">\s*([^<>\s][^<>]*)<", body) == []
    assert re.findall(r"\s(?:aria-label|title|placeholder|alt)=", body) == []
    noscript = re.search(r"<noscript>(.*?)</noscript>", PAGE, re.S)
    assert noscript is not None
    assert sorted(re.findall(r'lang="(\w+)"', noscript[1])) == LANGUAGES


def test_the_worker_copies_what_the_page_loads():
    found, waiting = {"participate.html", "style.css"}, ["participate.js"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        text = (STATIC / name).read_text(encoding="utf-8")
        waiting += [one for one in re.findall(r'from "\./([^"]+)"', text) if one not in found]
    assert set(FILES) == found | {f"texts/{language}.js" for language in LANGUAGES}
    assert len(FILES) == len(set(FILES))
    assert re.findall(r'href="/static/([^"]+)"', PAGE) == ["style.css"]


# --- what servers say ------------------------------------------------------------------------


def test_refusals_are_worded_as_the_server_words_them():
    for key, text in ENGLISH.items():
        if key.startswith("server-"):
            assert KNOWN[key.removeprefix("server-")][1] == text


def test_what_certificates_do_not_protect_is_in_the_catalogues():
    schema = TableSchema((Continuous("age", 18, 90), Categorical("zone", ("north", "south"))))
    rng = np.random.default_rng(0)
    people = {"age": rng.uniform(18, 90, 300), "zone": rng.choice(["north", "south"], 300)}
    classes, told = ["no", "yes"], {"id": "c", "title": "T", "purpose": "P."}
    mechanisms = [
        tacit.Codebook(epsilon=2, classes=classes, codewords=6, unit=unit).fit(
            people, schema=schema, inhouse_public=True
        )
        for unit in ("person", "record")
    ]
    mechanisms.append(tacit.Direct(epsilon=2, classes=classes).fit(None, schema=schema))
    mechanisms.append(tacit.Survey({"smoker": tacit.YesNo()}, epsilon=2, sheets=["smoker"]))
    known = {text for key, text in ENGLISH.items() if key.startswith("limit-")}
    assert {SEEN, INVITED, LINKED} <= known
    said = set()
    for made in mechanisms:
        labelled = made.kind != "survey"
        vote = 2.0 if labelled else None
        campaign = Campaign(mechanism=made, labelled=labelled, vote_epsilon=vote, **told)
        said |= set(campaign.certificate.not_protected)
    assert said == known
